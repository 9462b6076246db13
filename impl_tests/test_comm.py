"""impl.comm and impl.functions: accepted arguments, warnings, waits of the host."""

import inspect

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from impl import comm, functions

COPIES = (torch.ops.aten.copy_, torch.ops.aten._to_copy)


class CopyWaits(TorchDispatchMode):
    """A mode that records in ``waits``, for each copy, whether the host waits for it."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        options = {**dict(enumerate(args)), **(kwargs or {})}
        if function.overloadpacket in COPIES:
            self.waits.append(not options.get("non_blocking", options.get(2, False)))
        return function(*args, **(kwargs or {}))


#: Calls that copy the tensor ``x`` to or from the device ``other``.
CALLS = {
    "broadcast": lambda x, other: comm.broadcast(x, [other]),
    "broadcast out": lambda x, other: comm.broadcast(x, out=[torch.empty_like(x, device=other)]),
    "broadcast_coalesced": lambda x, other: comm.broadcast_coalesced([x, x], [x.device, other]),
    "reduce_add": lambda x, other: comm.reduce_add([x, x.to(other, non_blocking=True)], x.device),
    "scatter": lambda x, other: comm.scatter(x, [other]),
    "scatter out": lambda x, other: comm.scatter(x, out=[torch.empty_like(x, device=other)]),
    "gather": lambda x, other: comm.gather([x], 0, other),
    "gather out": lambda x, other: comm.gather([x], out=torch.empty_like(x, device=other)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_host_does_not_wait_for_copies_to_the_accelerator(topology, call):
    topology.require(distinct=2)
    first, second = sorted(set(topology.ordinals))[:2]
    x = torch.ones(2, device=torch.device(topology.accelerator, first))
    with CopyWaits() as log, torch.accelerator.device_index(first):
        call(x, torch.device(topology.accelerator, second))
    assert set(log.waits) == {False}


@pytest.mark.parametrize("size", [1e7, -1, float("inf")])
def test_a_buffer_size_of_sums_may_be_any_number(topology, size):
    x = torch.ones(2, device=topology.device(0))
    (total,) = comm.reduce_add_coalesced([[x], [x]], x.device, size)
    assert total.tolist() == [2, 2]


def test_comm_warning_names_the_line_of_the_caller(topology):
    x = torch.ones(1, device=topology.device(0))
    with pytest.warns(FutureWarning, match="-1") as caught:
        comm.gather([x], 0, -1)
    line = inspect.currentframe().f_lineno - 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


@pytest.mark.filterwarnings("ignore:Using -1:FutureWarning")
@pytest.mark.parametrize(
    "gather_on", [comm.gather, lambda x, dim, target: functions.Gather.apply(target, dim, *x)]
)
def test_device_minus_one_is_the_cpu_under_any_default_device(topology, gather_on):
    x = torch.ones(1, device=topology.device(0))
    with topology.device(1):
        assert gather_on([x], 0, -1).device == torch.device("cpu")
