"""replicate: complex, sparse and subclass tensors, which the reference mishandles.

RE-5 and RE-6: complex tensors. RE-10: sparse tensors. RE-11: classes and attributes of tensors.
"""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from spec_tests import checks
from spec_tests.machine import capabilities
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.module_kinds import ModuleOfKind
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.tensor_subclasses import WithDefault
from spec_tests.strategies.tensors import TensorSpec, device_slots

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
BLOCKS = {torch.sparse_bsr: (1, 2), torch.sparse_bsc: (1, 2)}
COMPRESSED = [torch.sparse_csr, torch.sparse_csc, *BLOCKS]
EVERY_LAYOUT = pytest.mark.parametrize("layout", [torch.sparse_coo, *COMPRESSED], ids=str)
EVERY_COMPRESSED_LAYOUT = pytest.mark.parametrize("layout", COMPRESSED, ids=str)


@clause("divergences.RE-5.complex-tensors-are-handed-over")
@given(count=st.integers(1, 3))
def test_first_detached_replica_shares_complex_parameters(target, topology, count):
    module = ModuleOfKind("complex").build(topology)
    first, *_ = target.replicate.replicate(module, topology.take(count), True)
    checks.same([*map(id, first.parameters())], [*map(id, module.parameters())])


@clause("divergences.RE-5.complex-tensors-are-handed-over")
@given(count=st.integers(1, 3), detach=st.booleans())
def test_first_replica_shares_complex_buffers(target, topology, count, detach):
    module = nn.Module()
    module.register_buffer("buffer", torch.ones(2, dtype=torch.complex64))
    module.to(topology.device(0))
    first, *_ = target.replicate.replicate(module, topology.take(count), detach)
    assert first.buffer is module.buffer


def sparse(topology, layout, rows):
    """Return a diagonal matrix of ``rows`` rows and four columns; 0 rows are allowed."""
    capabilities.require("sparse")
    matrix = torch.eye(rows, 4).to_sparse(layout=layout, blocksize=BLOCKS.get(layout))
    return matrix.to(topology.device(0))


def graph(matrix):
    """Return a module that multiplies its input with a sparse matrix."""
    weight = nn.Parameter(torch.ones(4, device=matrix.device))
    return Calls(
        lambda self, x: x @ self.matrix.to_dense() * self.weight,
        **{"weight": weight, "matrix": nn.Buffer(matrix)},
    )


@clause("divergences.RE-10.compressed-buffers-are-copied")
@EVERY_COMPRESSED_LAYOUT
def test_modules_with_compressed_buffers_are_trained(target, topology, layout):
    module = graph(sparse(topology, layout, 4))
    rows = torch.arange(16.0).to(topology.device(0)).reshape(4, 4)
    wrapper = target.data_parallel.DataParallel(module, topology.take((0, 1)))
    output = wrapper(rows)
    output.sum().backward()
    checks.same(output.tolist(), rows.tolist())
    checks.same(module.weight.grad.tolist(), rows.sum(0).tolist())


@clause("divergences.RE-10.sparse-parameters-are-refused-by-name")
@EVERY_LAYOUT
def test_a_sparse_parameter_that_requires_grad_is_refused_by_name(target, topology, layout):
    module = nn.Sequential(graph(sparse(topology, layout, 4)))
    module[0].sparse_weight = nn.Parameter(sparse(topology, layout, 4))
    with pytest.raises(NotImplementedError) as caught:
        target.replicate.replicate(module, topology.take((0, 1)))
    checks.contains(caught.value, ["0.sparse_weight", f"{layout}"])


class Quantized(nn.Parameter):
    """A subclass of Parameter with a state, like the parameters of bitsandbytes."""

    def __new__(cls, data, state):
        parameter = Tensor._make_subclass(cls, data, require_grad=False)
        parameter.state = state
        return parameter


class Net(nn.Module):
    """A module with parameters and buffers that have attributes and classes."""

    def __init__(self, device):
        super().__init__()
        self.plain = nn.Parameter(torch.ones(3, device=device))
        self.quantized = Quantized(torch.ones(3, device=device), ["state"])
        self.register_buffer("before", torch.ones(3, device=device))
        self.register_buffer("named", torch.ones(3, device=device).as_subclass(WithDefault))
        self.register_buffer("after", torch.ones(3, device=device))
        self.plain.axis = self.named.axis = self.after.axis = {"name": "axis"}

    def forward(self, x):
        assert self.quantized.state == ["state"]
        return x * self.plain * self.quantized


class Pair(nn.Module):
    """A module whose weight is a tensor with two inner tensors."""

    def __init__(self, device):
        super().__init__()
        rows = torch.arange(3.0).to(device)
        self.weight = nn.Parameter(TwoTensor(rows, rows + 1))


def on_device(module_class):
    return lambda topology, slot: module_class(topology.device(slot))


def complex_and_real(topology, slot):
    dtypes = (torch.float32, torch.complex64, torch.float64, torch.complex128)
    shapes = [(1,), (2,), (2, 3), (0,)]  # an odd number of elements
    specs = [TensorSpec(shape, dtype) for dtype in dtypes for shape in shapes]
    return nn.ParameterList([spec.build(topology) for spec in specs]).to(topology.device(slot))


def compressed(topology, slot):
    module = nn.Sequential(*(graph(sparse(topology, layout, 4)) for layout in COMPRESSED))
    return module.to(topology.device(slot))


#: For each clause: a function that makes a module on a device, and a fact about it and its
#: replicas.
FACTS = {
    "divergences.RE-6.complex-beside-real": (
        complex_and_real,
        lambda module: [module[index].tolist() for index in range(16)],
    ),
    "divergences.RE-10.compressed-buffers-are-copied": (
        compressed,
        lambda module: [(each.matrix.layout, each.matrix.to_dense().tolist()) for each in module],
    ),
    "divergences.RE-11.attributes-of-tensors-are-kept": (
        on_device(Net),
        lambda net: [
            *(id(getattr(net, name).axis) for name in ("plain", "named", "after")),
            id(net.quantized.state),
        ],
    ),
    "divergences.RE-11.classes-of-buffers-are-kept": (
        on_device(Net),
        lambda net: [type(net.before), type(net.named), type(net.after)],
    ),
    "divergences.RE-11.wrapper-parameters-are-copied": (
        on_device(Pair),
        lambda net: (
            type(net.weight),
            *(net.weight.a.tolist(), net.weight.b.tolist()),
            *(net.weight.device == part.device for part in (net.weight.a, net.weight.b)),
        ),
    ),
}


@cases("name", {name: [name] for name in FACTS})
@given(slots=device_slots(), detach=st.booleans())
@example(slots=(0, 1), detach=False)
def test_replicas_agree_with_the_module_on_a_fact(target, topology, name, slots, detach):
    make, fact = FACTS[name]
    module = make(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    checks.same([*map(fact, replicas)], [fact(module)] * len(slots), slots)


@clause("divergences.RE-11.attributes-of-tensors-are-kept")
def test_a_module_reads_the_attributes_of_its_parameters_in_every_replica(target, topology):
    net = Net(topology.device(0))
    wrapper = target.data_parallel.DataParallel(net, topology.take((0, 1)))
    wrapper(torch.ones(4, 3, device=topology.device(0))).sum().backward()
    checks.same(net.plain.grad.tolist(), [4.0, 4.0, 4.0])


@clause("divergences.RE-11.wrapper-parameters-are-copied")
def test_gradients_of_wrapper_parameters_are_summed(target, topology):
    net = Pair(topology.device(0))
    for replica in target.replicate.replicate(net, topology.take((0, 1))):
        (replica.weight * 2).sum().backward()
    checks.same((net.weight.grad.a.tolist(), net.weight.grad.b.tolist()), ([4.0] * 3,) * 2)
