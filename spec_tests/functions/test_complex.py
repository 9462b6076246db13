"""Complex tensors in the autograd Functions, and real tensors beside complex ones: CO-2."""

import pytest
import torch

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.oracle.tensors import concatenate_on_cpu, stack_on_cpu
from spec_tests.strategies.tensors import TensorSpec, counting

MIXED = [(torch.float32, torch.complex64), (torch.complex64, torch.float32)]


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
    checks.same(gradient, tensor, place="gradient")


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
    factor = -1 + 2j  # The real part of a gradient is negative, unlike its absolute value.
    gradients = torch.autograd.grad(joined, chunks, joined * factor)
    checks.same(joined, concatenate_on_cpu(chunks, 0))
    assert [gradient.dtype for gradient in gradients] == list(dtypes)
    expected = [chunk * (factor if chunk.is_complex() else factor.real) for chunk in chunks]
    assert [gradient.tolist() for gradient in gradients] == [each.tolist() for each in expected]


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
