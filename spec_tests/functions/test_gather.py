"""functions.Gather: chunks joined into one tensor, with gradients."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.refusals import missing_facts, refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.gradients import facts, gathered_gradient
from spec_tests.strategies.calls import ApplyCall, DeviceAt, PublicCall, build
from spec_tests.strategies.comm import dense
from spec_tests.strategies.functions import gather_applies, scalar_gathers
from spec_tests.strategies.tensors import COMPLEX, FLOATS, TensorSpec, counting

SCALARS = (
    "Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
    "unsqueeze and return a vector."
)


FIRST = DeviceAt(0)


def _gather(*tensors, to=FIRST, dim=0):
    return ApplyCall("Gather", (to, dim), tensors)


#: Chunks that no device holds.
NOTHING = [torch.ones(2, device="meta")] * 2
NOWHERE = [
    _gather(*NOTHING),
    PublicCall("scatter_gather.gather", {"outputs": NOTHING, "target_device": FIRST}),
]


@clause("functions.gather.joined")
@given(call=gather_applies())
def test_chunks_are_joined_in_order(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("functions.gather.gradient-split")
@given(call=gather_applies(kinds=(FLOATS, COMPLEX), grads=(True,)))
def test_each_chunk_gets_its_part_of_the_gradient(target, topology, call):
    inputs = call.inputs(topology)
    chunks, dim = inputs["tensors"], call.settings[1]
    joined = call.run(target, inputs)
    slope = cotangent(joined)
    found = torch.autograd.grad(joined, chunks, slope)
    checks.same(facts(found), facts(gathered_gradient(slope, chunks, dim)), call)


@clause("functions.gather.always-new")
@pytest.mark.parametrize("count", [1, 2], ids="chunks={}".format)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "requires-grad"])
def test_the_result_shares_no_memory_with_the_chunks(target, topology, count, grad):
    chunks = [counting((2, 2), torch.float32, topology.device(0)) for _ in range(count)]
    leaves = [chunk.requires_grad_(grad) for chunk in chunks]
    joined = target.functions.Gather.apply(topology.device(0), 0, *leaves)
    joined.detach().fill_(-1)
    assert [chunk.tolist() for chunk in chunks] == [[[0, 1], [2, 3]]] * count


@clause("functions.gather.keeps-channels-last")
@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (2, 3, 2, 2, 2)], ids=["images", "volumes"])
def test_channels_last_chunks_stay_channels_last(target, answers, topology, shape):
    chunks = [
        TensorSpec(shape, layout="channels_last", requires_grad=True, slot=slot) for slot in (0, 1)
    ]
    checks.agree(_gather(*chunks), target, answers, topology)


@clause("functions.gather.scalars-become-a-vector")
@given(call=scalar_gathers())
def test_scalars_make_a_vector_and_warn(target, answers, topology, call):
    checks.agree(call, target, answers, topology)
    with pytest.warns(UserWarning, match=SCALARS):
        joined = call.run(target, call.inputs(topology))
    assert joined.shape == (len(call.tensors),)


class Warner(torch.autograd.Function):
    """Warns of what calls its forward."""

    @staticmethod
    def forward(ctx, target, dim, *tensors):
        warnings.warn(SCALARS, stacklevel=2)
        return tensors[0].clone()


#: A library whose Gather is that.
WARNING = SimpleNamespace(functions=SimpleNamespace(Gather=Warner))


def _place_of_warning(library, topology):
    call = _gather(dense(()))
    with pytest.warns(UserWarning, match=SCALARS) as caught:
        call.run(library, call.inputs(topology))
    return caught[0].filename, caught[0].lineno


@clause("functions.gather.warning-names-autograd")
def test_the_warning_of_scalars_points_at_what_called_forward(target, topology):
    # Callers silence it by that place.
    assert _place_of_warning(target, topology) == _place_of_warning(WARNING, topology)


@clause("functions.gather.scalar-gradients")
@pytest.mark.parametrize("count", [1, 3], ids="scalars={}".format)
def test_the_gradient_of_a_scalar_is_a_scalar(target, topology, count):
    scalars = build([dense((), slot, requires_grad=True) for slot in range(count)], topology)
    with pytest.warns(UserWarning, match=SCALARS):
        joined = target.functions.Gather.apply(topology.device(0), 0, *scalars)
    weights = torch.arange(1.0, count + 1, device=joined.device)
    found = torch.autograd.grad(joined, scalars, weights)
    assert [slope.tolist() for slope in found] == weights.tolist()
    assert [slope.device for slope in found] == topology.take(count)


@clause("functions.gather.refuses-scalars-elsewhere")
@pytest.mark.parametrize("dim", [1, -1])
def test_scalars_are_refused_along_another_dimension(target, topology, dim):
    text = f"Dimension specified as {dim} but tensor has no dimensions"
    refused(_gather(dense(()), dense(()), dim=dim), target, topology, IndexError, text)


@clause("functions.gather.refuses-scalars-among-vectors")
@pytest.mark.parametrize("shapes", [((), (1,)), ((1,), ())], ids=str)
def test_scalars_among_vectors_are_refused(target, topology, shapes):
    text = "Dimension specified as 0 but tensor has no dimensions"
    refused(_gather(*map(dense, shapes)), target, topology, IndexError, text)


@clause("functions.gather.current-device")
@pytest.mark.parametrize("spelled", ["None", "text", "device"])
def test_a_target_without_index_is_the_current_device(target, topology, spelled):
    kind = topology.accelerator
    destination = {"None": None, "text": kind, "device": torch.device(kind)}[spelled]
    chunk = counting((2, 2), torch.float32, topology.device(0))
    with torch.accelerator.device_index(topology.device(1).index):
        joined = target.functions.Gather.apply(destination, 0, chunk)
    assert joined.device == topology.device(1)


@clause("functions.gather.minus-one-is-the-cpu")
def test_minus_one_means_the_cpu_and_warns(target, answers, topology):
    call = _gather(dense(), dense(), to=-1)
    checks.agree(call, target, answers, topology)
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        joined = call.run(target, call.inputs(topology))
    assert joined.device.type == "cpu"


@clause("functions.gather.refuses-cpu-among-others")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_a_chunk_on_the_cpu_among_others_is_refused(target, topology, index):
    chunks = [dense(), dense()]
    chunks[index] = dense(slot=None)
    text = "Gather function not implemented for CPU tensors"
    refused(_gather(*chunks), target, topology, AssertionError, text)


@clause("functions.gather.refuses-other-shapes")
@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((4, 5), "Input tensor at index 1 has invalid shape [4, 5], but expected [4, 3]"),
        (
            (4, 3, 1),
            "Expected all input tensors to have the same number of dimensions, "
            "but tensor at index 1 has 3 dimensions, (expected 2)",
        ),
    ],
    ids=["shape", "dimensions"],
)
def test_a_chunk_of_another_shape_is_refused(target, topology, shape, text):
    refused(_gather(dense(), dense(shape)), target, topology, RuntimeError, text)


@clause("functions.gather.refuses-other-devices")
@pytest.mark.parametrize("call", NOWHERE, ids=lambda call: call.function)
def test_tensors_that_hold_nothing_are_refused(target, topology, call):
    with pytest.raises(RuntimeError) as caught:
        call.run(target, call.inputs(topology))
    kind = topology.accelerator.upper()
    text = f"Expected all input tensors to be {kind} tensors, but tensor at index 0 has device "
    assert missing_facts(str(caught.value), [text, "meta"]) == []
