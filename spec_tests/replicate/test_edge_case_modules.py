"""replicate: modules with containers, computed weights, hooks, overridden methods or graphs.

The reference refuses traced and exported modules with a parameter at the root: RE-9.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import nn
from torch.fx import symbolic_trace

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import cases, clause
from spec_tests.strategies.edge_case_modules import AssignmentLogger, EdgeCaseModule
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.replicate import edge_case_module_calls
from spec_tests.strategies.supported_layers import computed
from spec_tests.strategies.tensors import device_slots

#: Clause -> kinds of modules.
KINDS = {
    # PyTorch 1.5: ParameterList and ParameterDict were empty in replicas (#36035, #42327).
    "replicate.zoo.parameter-containers": ["lists", "dicts"],
    # PyTorch 0.2: a weight computed from other parameters did not work in replicas (#2720).
    "replicate.zoo.parametrized": ["weight_norm", "spectral_norm", "orthogonal"],
    "replicate.zoo.computed-before-forward": ["weight_norm_hook", "spectral_norm_hook", "pruned"],
    "replicate.zoo.hooks": ["hooks"],
    "replicate.zoo.recurrent": ["lstm", "gru", "rnn", "projected_lstm"],
    "replicate.zoo.attention": ["transformer"],
    "replicate.zoo.graph-modules": ["graph"],
    "replicate.zoo.observers": ["observers"],
    "replicate.zoo.materialised": ["materialised"],
    "replicate.zoo.without-tensors": ["empty", "tanh"],
    "replicate.buffers.dtypes": ["assorted"],
    "replicate.parameters.large": ["large"],
    "replicate.zoo.embeddings": ["embedding", "sparse_embedding"],
    "replicate.overrides.replica-hook": ["tagged"],
    "replicate.overrides.setattr": ["logged"],
}


@cases("kind", KINDS)
@given(call=edge_case_module_calls("linear"))
def test_edge_case_modules_are_replicated(target, baselines, topology, kind, call):
    (computed_kind,) = computed([kind])
    call = replace(call, network=EdgeCaseModule(computed_kind))
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


class SlotsLinear(nn.Linear):
    """A linear layer with one attribute in ``__slots__``."""

    __slots__ = ("slot_attribute",)

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.slot_attribute = 7


class UnhashableLinear(nn.Linear):
    """A linear layer that defines ``__eq__`` and is not hashable."""

    def __eq__(self, other):
        return self is other

    __hash__ = None


class RequiresArguments(nn.Linear):
    """A linear layer whose ``__new__`` requires an argument."""

    def __new__(cls, width):
        return super().__new__(cls)

    def __init__(self, width):
        super().__init__(width, width)


@clause("replicate.overrides.replica-hook")
@given(slots=device_slots())
def test_replicate_for_data_parallel_set_on_a_module_makes_its_replicas(target, topology, slots):
    module = nn.Sequential(nn.ReLU(), nn.ReLU())
    vars(module[1])["_replicate_for_data_parallel"] = nn.Tanh
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same([type(replica[1]) for replica in replicas], [nn.Tanh] * len(slots), slots)


@clause("replicate.overrides.setattr")
@given(slots=device_slots())
def test_an_override_of_setattr_sees_every_assignment(target, topology, slots):
    module = AssignmentLogger().to(topology.device(slots[0]))
    module.log.clear()
    target.replicate.replicate(module, topology.take(slots))
    tensor = type(module.buffer).__name__  # Some devices have a class of their own.
    assigned = [("buffer", tensor), ("child", "Tanh"), ("weight", tensor)]
    checks.same(sorted(module.log), sorted(assigned * len(slots)), slots)


#: Clause -> a class, its argument, and the text of the error.
REFUSED = {
    "replicate.overrides.unhashable": [
        (UnhashableLinear, (WIDTH, WIDTH), "unhashable type: 'UnhashableLinear'")
    ],
    "replicate.overrides.new": [
        (RequiresArguments, (WIDTH,), "missing 1 required positional argument: 'width'")
    ],
}


@cases("module_class, args, text", REFUSED)
@given(slots=device_slots())
def test_a_class_that_replicate_cannot_copy_is_refused(
    target, topology, module_class, args, text, slots
):
    module = module_class(*args).to(topology.device(slots[0]))
    with pytest.raises(TypeError, match=text):
        target.replicate.replicate(module, topology.take(slots))


@clause("replicate.overrides.slots")
@given(slots=device_slots())
def test_attributes_in_slots_are_not_copied(target, topology, slots):
    module = SlotsLinear().to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same(
        [hasattr(replica, "slot_attribute") for replica in replicas], [False] * len(slots), slots
    )


class ClassToken(nn.Module):
    """A module with a parameter and a buffer at the root, like a vision transformer."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.arange(1.0, 4.0))
        self.layer = nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(3))
        _fill(self.layer)

    def forward(self, x):
        return self.layer(x * self.token + self.shift)


def _fill(layer):
    """Fill a layer with whole numbers: their sums do not depend on the order of the addends."""
    for parameter in layer.parameters():
        nn.init.constant_(parameter, len(parameter))
    return layer


def _trace_child(module):
    return nn.Sequential(symbolic_trace(module), symbolic_trace(_fill(nn.Linear(2, 2))))


def _export(module):
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (torch.ones(4, 3),), dynamic_shapes=({0: batch},))
    return program.module()


def gradients(module, output):
    """Run backward; return the gradient of each parameter of ``module``."""
    module.zero_grad()
    output.square().sum().backward()
    return {name: parameter.grad.tolist() for name, parameter in module.named_parameters()}


# torch.export calls functions of PyTorch that are deprecated.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@clause("divergences.RE-9.graph-modules-are-trained")
@pytest.mark.parametrize(
    "make", [symbolic_trace, _trace_child, _export], ids=["traced", "children", "exported"]
)
@pytest.mark.parametrize("devices", [(0, 1), (0, 0, 1)], ids=str)
def test_graph_modules_are_trained_like_the_unwrapped_module(target, topology, make, devices):
    module = make(ClassToken()).to(topology.device(0))
    rows = torch.arange(12.0).reshape(4, 3).to(topology.device(0))
    wrapper = target.data_parallel.DataParallel(module, topology.take(devices))
    checks.same(wrapper(rows).tolist(), module(rows).tolist())
    checks.same(gradients(module, wrapper(rows)), gradients(module, module(rows)))
