"""impl.comm: which copies the host waits for; only those to the CPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from impl import comm

COPIES = (torch.ops.aten._to_copy, torch.ops.aten.copy_)
CPU = torch.device("cpu")


class Watch(TorchDispatchMode):
    """Notes, for each copy, whether the host goes on without waiting for it."""

    def __init__(self):
        super().__init__()
        self.copies = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.overloadpacket in COPIES:
            positional = args[2] if len(args) > 2 else False
            self.copies.append(kwargs.get("non_blocking", positional))
        return func(*args, **kwargs)


CALLS = {
    "broadcast": lambda x, there: comm.broadcast(x, [there]),
    "broadcast out": lambda x, there: comm.broadcast(x, out=[torch.empty_like(x, device=there)]),
    "broadcast_coalesced": lambda x, there: comm.broadcast_coalesced([x, x], [x.device, there]),
    "reduce_add": lambda x, there: comm.reduce_add([x, x.to(there, non_blocking=True)], x.device),
    "scatter": lambda x, there: comm.scatter(x, [there]),
    "scatter out": lambda x, there: comm.scatter(x, out=[torch.empty_like(x, device=there)]),
    "gather": lambda x, there: comm.gather([x], 0, there),
    "gather out": lambda x, there: comm.gather([x], out=torch.empty_like(x, device=there)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_copies_to_the_accelerator_are_not_waited_for(topology, call):
    topology.require(distinct=2)
    first, second = sorted(set(topology.ordinals))[:2]
    x = torch.ones(2, device=torch.device(topology.accelerator, first))
    with Watch() as watch, torch.accelerator.device_index(first):
        call(x, torch.device(topology.accelerator, second))
    assert watch.copies
    assert all(watch.copies)


@pytest.mark.parametrize("name", ["gather", "gather out"])
def test_copies_to_the_cpu_are_waited_for(topology, name):
    with Watch() as watch:
        CALLS[name](torch.ones(2, device=topology.device(0)), CPU)
    assert watch.copies == [False]
