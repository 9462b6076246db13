"""comm: complex tensors, which the reference returns as pairs of real numbers: CO-1."""

import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.oracle.tensors import concatenate_on_cpu, stack_on_cpu
from spec_tests.strategies.comm import (
    broadcast_calls,
    broadcast_out_calls,
    gather_calls,
    gather_out_calls,
    scatter_calls,
    scatter_out_calls,
)
from spec_tests.strategies.tensors import COMPLEX_LAYOUTS, counting

COMPLEX = (torch.complex64,)


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
