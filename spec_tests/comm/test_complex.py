"""Complex tensors, which the reference splits into real numbers: CO-1 and CO-2."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.tensors import concatenate_on_cpu, stack_on_cpu
from spec_tests.strategies.comm import (
    broadcast_calls,
    broadcast_out_calls,
    gather_calls,
    gather_out_calls,
    scatter_calls,
    scatter_out_calls,
)
from spec_tests.strategies.tensors import COMPLEX_LAYOUTS, TensorSpec, counting

COMPLEX = (torch.complex64,)
MIXED = [(torch.float32, torch.complex64), (torch.complex64, torch.float32)]


@clause("divergences.CO-1.complex-stays-complex")
@given(
    call=scatter_calls(dtypes=COMPLEX, layouts=COMPLEX_LAYOUTS) | scatter_out_calls(dtypes=COMPLEX)
)
def test_scatter_returns_complex_chunks(target, topology, call):
    inputs = call.inputs(topology)
    chunks = call.run(target, inputs)
    checks.same(concatenate_on_cpu(chunks, inputs["dim"]), inputs["tensor"], call)


@clause("divergences.CO-1.complex-stays-complex")
@given(
    call=broadcast_calls(dtypes=COMPLEX, counts=(1, 2, 3), layouts=COMPLEX_LAYOUTS)
    | broadcast_out_calls(dtypes=COMPLEX, counts=(1, 2, 3))
)
def test_broadcast_returns_complex_copies(target, topology, call):
    inputs = call.inputs(topology)
    copies = call.run(target, inputs)
    checks.same(stack_on_cpu(copies), stack_on_cpu([inputs["tensor"]] * len(copies)), call)


@clause("divergences.CO-1.complex-stays-complex")
def test_broadcast_coalesced_returns_complex_and_real_copies(target, topology):
    dtypes = [torch.complex64, torch.float32, torch.complex128]
    tensors = [counting((2, 3), dtype, topology.device(0)).conj() for dtype in dtypes]
    first, second = target.comm.broadcast_coalesced(tensors, topology.take([0, 1]))
    assert [id(tensor) for tensor in first] == [id(tensor) for tensor in tensors]
    assert [copy.dtype for copy in second] == dtypes
    assert [copy.tolist() for copy in second] == [tensor.tolist() for tensor in tensors]


@clause("divergences.CO-1.complex-stays-complex")
@given(
    call=gather_calls(dtypes=COMPLEX, layouts=COMPLEX_LAYOUTS) | gather_out_calls(dtypes=COMPLEX)
)
def test_gather_joins_complex_chunks(target, topology, call):
    inputs = call.inputs(topology)
    joined = call.run(target, inputs)
    checks.same(joined, concatenate_on_cpu(inputs["tensors"], inputs["dim"]), call)


@clause("divergences.CO-2.dims-are-the-tensors-own")
@pytest.mark.parametrize("dim", [-1, -2])
def test_scatter_function_splits_complex_tensors_along_their_own_dims(target, topology, dim):
    tensor = counting((4, 3), torch.complex64, topology.device(0)).conj().requires_grad_()
    chunks = target.functions.Scatter.apply(topology.take(2), None, dim, tensor)
    (gradient,) = torch.autograd.grad(chunks, tensor, chunks)
    assert [tuple(chunk.shape) for chunk in chunks] == [
        tuple(part.shape) for part in tensor.chunk(2, dim)
    ]
    checks.same(concatenate_on_cpu(chunks, dim), tensor)
    checks.same(gradient, tensor)


@clause("divergences.CO-2.dims-are-the-tensors-own")
@pytest.mark.parametrize("dim", [-1, -2])
def test_gather_function_joins_complex_tensors_along_their_own_dims(target, topology, dim):
    chunks = [counting((2, 3), torch.complex64, device) for device in topology.take(2)]
    leaves = [chunk.conj().requires_grad_() for chunk in chunks]
    joined = target.functions.Gather.apply("cpu", dim, *leaves)
    gradients = torch.autograd.grad(joined, leaves, joined)
    checks.same(joined, concatenate_on_cpu(leaves, dim))
    checks.same(stack_on_cpu(gradients), stack_on_cpu(leaves))


@clause("divergences.CO-2.every-input-by-itself")
@pytest.mark.parametrize("dtypes", MIXED, ids=["complex-second", "complex-first"])
def test_real_and_complex_chunks_are_joined_to_a_complex_tensor(target, topology, dtypes):
    chunks = [counting((2, 3), dtype, topology.device(0)) for dtype in dtypes]
    joined = target.comm.gather(chunks, 0, "cpu")
    checks.same(joined, concatenate_on_cpu(chunks, 0))


@clause("divergences.CO-2.every-input-by-itself")
@pytest.mark.parametrize("dtypes", MIXED, ids=["complex-second", "complex-first"])
def test_a_real_chunk_beside_complex_ones_has_a_real_gradient(target, topology, dtypes):
    chunks = [counting((2, 3), dtype, topology.device(0)).requires_grad_() for dtype in dtypes]
    joined = target.functions.Gather.apply("cpu", 0, *chunks)
    gradients = torch.autograd.grad(joined, chunks, joined)
    checks.same(joined, concatenate_on_cpu(chunks, 0))
    assert [gradient.dtype for gradient in gradients] == list(dtypes)
    assert [gradient.tolist() for gradient in gradients] == [chunk.tolist() for chunk in chunks]


@clause("divergences.CO-2.real-beside-complex")
def test_complex_and_real_tensors_are_summed_together(target, topology):
    addends = [
        torch.ones(length, dtype=dtype, device=device)
        for device in topology.take(3)
        for length, dtype in ((1, torch.float32), (2, torch.complex64))
    ]
    function = target.functions.ReduceAddCoalesced
    real, complex_sum = function.apply(topology.device(0), 2, *addends)
    assert (real.dtype, real.tolist()) == (torch.float32, [3.0])
    assert (complex_sum.dtype, complex_sum.tolist()) == (torch.complex64, [3.0, 3.0])


@clause("divergences.CO-2.real-beside-complex")
def test_copies_of_complex_and_real_tensors_have_gradients(target, topology):
    dtypes = [torch.float32, torch.complex64]
    tensors = [counting((1,), dtype, topology.device(0)).requires_grad_() for dtype in dtypes]
    copies = target.functions.Broadcast.apply(topology.take(2), *tensors)
    gradients = torch.autograd.grad(copies, tensors, [torch.ones_like(copy) for copy in copies])
    assert [gradient.tolist() for gradient in gradients] == [[2.0], [2.0]]


@clause("divergences.CO-2.channels-last-stays")
def test_complex_channels_last_chunks_stay_channels_last(target, topology):
    spec = TensorSpec((2, 3, 2, 2), torch.complex64, layout="channels_last")
    chunks = [spec.build(topology) for _ in range(2)]
    joined = target.functions.Gather.apply(topology.device(0), 0, *chunks)
    assert joined.is_contiguous(memory_format=torch.channels_last)
