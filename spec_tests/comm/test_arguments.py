"""comm: generators in place of lists, empty lists and tensors, and subclasses of Tensor."""

import pytest
import torch

from spec_tests import checks
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import clause
from spec_tests.machine.devices import not_run
from spec_tests.strategies.calls import KeywordCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.tensor_subclasses import Named
from spec_tests.strategies.tensors import counting


def _each(members):
    return (member for member in members)


#: For each argument: a function that makes a call with ``collect(list)`` as this argument.
CALLS = {
    "scatter-devices": lambda comm, collect, x, devices: comm.scatter(x, collect(devices)),
    "scatter-chunk_sizes": lambda comm, collect, x, devices: comm.scatter(
        x, devices, collect([1, 3])
    ),
    "scatter-out": lambda comm, collect, x, devices: comm.scatter(
        x, out=collect([torch.zeros_like(x)])
    ),
    "broadcast-devices": lambda comm, collect, x, devices: comm.broadcast(x, collect(devices)),
    "broadcast-out": lambda comm, collect, x, devices: comm.broadcast(
        x, out=collect([torch.zeros_like(x)])
    ),
    "broadcast_coalesced-tensors": lambda comm, collect, x, devices: comm.broadcast_coalesced(
        collect([x]), devices
    ),
    "broadcast_coalesced-devices": lambda comm, collect, x, devices: comm.broadcast_coalesced(
        [x], collect(devices)
    ),
    "gather-tensors": lambda comm, collect, x, devices: comm.gather(collect([x, x])),
}


@clause("comm.generators")
@pytest.mark.parametrize("name", CALLS)
def test_generator_is_accepted_like_a_list(target, topology, name):
    x, devices = counting((4, 2)).to(topology.device(0)), topology.take(2)
    found, expected = (
        snapshot(CALLS[name](target.comm, collect, x, devices), {}) for collect in (_each, list)
    )
    checks.same(found, expected, name)


SCALARS = [dense(()), dense((), slot=1)]
DIMENSION_TEXT = "at least one dimension"
#: For each call: its function, its arguments, and a part of the text of the error.
EMPTY = {
    "broadcast_coalesced": (
        "broadcast_coalesced",
        {"tensors": [dense()], "devices": []},
        "at least one device",
    ),
    "reduce_add": ("reduce_add", {"inputs": []}, "at least one tensor"),
    "gather": ("gather", {"tensors": SCALARS}, DIMENSION_TEXT),
    "gather-out": ("gather", {"tensors": SCALARS, "out": dense((2,))}, DIMENSION_TEXT),
    "scatter-out": ("scatter", {"tensor": dense(()), "out": [dense(())]}, DIMENSION_TEXT),
}
#: Calls for which the reference raises no error on CUDA: it reads past the end of an empty list.
UNDEFINED = ("broadcast_coalesced", "scatter-out")


@clause("divergences.CO-3.nothing-given")
@pytest.mark.parametrize("name", EMPTY)
def test_calls_without_devices_tensors_or_dimensions_raise_value_errors(target, topology, name):
    if name in UNDEFINED and (target.name, topology.accelerator) == ("torch.nn.parallel", "cuda"):
        not_run("undefined behaviour of the reference, which may crash the run")
    function, arguments, text = EMPTY[name]
    call = KeywordCall(f"comm.{function}", arguments)
    with pytest.raises(ValueError, match=text):
        call.run(target, call.inputs(topology))


#: For each function of comm: a function that returns its results for one tensor.
COPIES = {
    "scatter": lambda comm, tensor, devices: comm.scatter(tensor, devices),
    "broadcast": lambda comm, tensor, devices: comm.broadcast(tensor, devices),
    "broadcast_coalesced": lambda comm, tensor, devices: [
        copy for row in comm.broadcast_coalesced([tensor], devices) for copy in row
    ],
}


@clause("divergences.SG-14.copies-keep-the-class")
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_comm_have_the_class_of_their_tensor(target, topology, name):
    tensor = torch.ones(4, device=topology.device(0)).as_subclass(Named)
    topology.require(distinct=2)
    copies = COPIES[name](target.comm, tensor, topology.take(2))
    checks.same([type(copy) for copy in copies], [Named] * 2, name)
