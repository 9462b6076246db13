"""Complex parameters and buffers, which the reference mishandles: RE-5 and RE-6."""

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.edge_case_modules import EdgeCaseModule
from spec_tests.strategies.tensors import TensorSpec, device_slots, shapes, tensor_specs

OBJECTS_CLAUSE = clause("divergences.RE-5.complex-tensors-are-handed-over")
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SPECS = st.lists(
    tensor_specs(shape=shapes(min_dims=0, max_dims=2), dtypes=DTYPES, layouts=("contiguous",)),
    min_size=1,
    max_size=4,
)


@OBJECTS_CLAUSE
@given(count=st.integers(1, 3))
def test_first_detached_replica_shares_complex_parameters(target, topology, count):
    module = EdgeCaseModule("complex").build(topology)
    first, *_ = target.replicate.replicate(module, topology.take(count), True)
    checks.same([*map(id, first.parameters())], [*map(id, module.parameters())])


@OBJECTS_CLAUSE
@given(count=st.integers(1, 3), detach=st.booleans())
def test_first_replica_shares_complex_buffers(target, topology, count, detach):
    module = nn.Module()
    module.register_buffer("buffer", torch.ones(2, dtype=torch.complex64))
    module.to(topology.device(0))
    first, *_ = target.replicate.replicate(module, topology.take(count), detach)
    assert first.buffer is module.buffer


@clause("divergences.RE-6.complex-beside-real")
@given(specs=SPECS, slots=device_slots(), detach=st.booleans())
@example(specs=[TensorSpec((1,)), TensorSpec((2,), torch.complex64)], slots=(0, 1), detach=False)
def test_complex_parameters_are_copied_beside_real_ones(target, topology, specs, slots, detach):
    built = [spec.build(topology) for spec in specs]
    module = nn.ParameterList(built).to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    found = [
        [replica[index].detach().cpu() for index in range(len(specs))] for replica in replicas
    ]
    expected = [[tensor.detach().cpu() for tensor in built]] * len(slots)
    checks.same(snapshot(found, {}), snapshot(expected, {}), specs)
