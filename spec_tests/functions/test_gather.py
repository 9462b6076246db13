"""functions.Gather: concatenation of chunks into one tensor, with gradients."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.functions import SCALARS_WARNING
from spec_tests.oracle.gradients import gathered_gradient, gradient_snapshot
from spec_tests.strategies.calls import ApplyCall, DeviceAt, PublicCall, build
from spec_tests.strategies.comm import dense
from spec_tests.strategies.functions import gather_applies, scalar_gathers
from spec_tests.strategies.tensors import COMPLEX, FLOATS

DEVICE = DeviceAt(0)


def _gather(*tensors, destination=DEVICE, dim=0):
    return ApplyCall("Gather", (destination, dim), tensors)


META_CHUNKS = [torch.ones(2, device="meta")] * 2
META_CALLS = [
    _gather(*META_CHUNKS),
    PublicCall("scatter_gather.gather", {"outputs": META_CHUNKS, "target_device": DEVICE}),
]


@clause("functions.gather.joined")
@given(call=gather_applies())
def test_gather_function_concatenates_chunks_in_order(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("functions.gather.gradient-split")
@given(call=gather_applies(dtype_groups=(FLOATS, COMPLEX), grads=(True,)))
def test_chunk_gets_its_slice_of_the_gradient(target, topology, call):
    inputs = call.inputs(topology)
    chunks, dim = inputs["tensors"], call.settings[1]
    joined = call.run(target, inputs)
    gradient = cotangent(joined)
    found = torch.autograd.grad(joined, chunks, gradient)
    checks.same(
        gradient_snapshot(found), gradient_snapshot(gathered_gradient(gradient, chunks, dim)), call
    )


@clause("functions.gather.scalars-become-a-vector")
@given(call=scalar_gathers())
def test_scalars_become_a_vector_with_a_warning(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)
    with pytest.warns(UserWarning, match=SCALARS_WARNING):
        joined = call.run(target, call.inputs(topology))
    assert joined.shape == (len(call.tensors),)


class WarningGather(torch.autograd.Function):
    """A Function whose warning names the file and line of the caller of ``forward``."""

    @staticmethod
    def forward(ctx, target, dim, *tensors):
        warnings.warn(SCALARS_WARNING, stacklevel=2)
        return tensors[0].clone()


#: Used in place of ``target``: a library whose Gather is `WarningGather`.
WARNING_LIBRARY = SimpleNamespace(functions=SimpleNamespace(Gather=WarningGather))


def _place_of_warning(library, topology):
    call = _gather(dense(()))
    with pytest.warns(UserWarning, match=SCALARS_WARNING) as caught:
        call.run(library, call.inputs(topology))
    return caught[0].filename, caught[0].lineno


@clause("functions.gather.warning-names-autograd")
def test_warning_for_scalars_names_the_caller_of_forward(target, topology):
    # Users' warning filters may match this file and line.
    assert _place_of_warning(target, topology) == _place_of_warning(WARNING_LIBRARY, topology)


@clause("functions.gather.scalar-gradients")
@pytest.mark.parametrize("count", [1, 3], ids="scalars={}".format)
def test_gradient_of_a_scalar_is_a_scalar(target, topology, count):
    scalars = build([dense((), slot, requires_grad=True) for slot in range(count)], topology)
    with pytest.warns(UserWarning, match=SCALARS_WARNING):
        joined = target.functions.Gather.apply(topology.device(0), 0, *scalars)
    weights = torch.arange(1.0, count + 1).to(joined.device)
    found = torch.autograd.grad(joined, scalars, weights)
    assert [gradient.tolist() for gradient in found] == weights.tolist()
    assert [gradient.device for gradient in found] == topology.take(count)


@clause("functions.gather.refuses-scalars-elsewhere")
@pytest.mark.parametrize("dim", [1, -1])
def test_scalars_are_refused_for_dims_other_than_zero(target, topology, dim):
    text = f"Dimension specified as {dim} but tensor has no dimensions"
    refused(_gather(dense(()), dense(()), dim=dim), target, topology, IndexError, text)


@clause("functions.gather.refuses-scalars-among-vectors")
@pytest.mark.parametrize("shapes", [((), (1,)), ((1,), ())], ids=str)
def test_scalars_and_vectors_together_are_refused(target, topology, shapes):
    text = "Dimension specified as 0 but tensor has no dimensions"
    refused(_gather(*map(dense, shapes)), target, topology, IndexError, text)


@clause("functions.gather.refuses-cpu-among-others")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_cpu_chunk_among_device_chunks_is_refused(target, topology, index):
    chunks = [dense(), dense()]
    chunks[index] = dense(slot=None)
    text = "Gather function not implemented for CPU tensors"
    refused(_gather(*chunks), target, topology, AssertionError, text)


@clause("functions.gather.refuses-other-devices")
@pytest.mark.parametrize("call", META_CALLS, ids=lambda call: call.function)
def test_meta_tensors_are_refused(target, topology, call):
    with pytest.raises(RuntimeError) as caught:
        call.run(target, call.inputs(topology))
    kind = topology.accelerator.upper()
    text = f"Expected all input tensors to be {kind} tensors, but tensor at index 0 has device "
    checks.contains(caught.value, [text, "meta"])
