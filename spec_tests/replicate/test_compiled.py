"""Replicas of compiled modules: RE-1.

The reference removes the parameters of the module, and its replicas run no compiled code.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks import replica_laws as laws
from spec_tests.machine import profiles
from spec_tests.machine.clauses import clause
from spec_tests.strategies.compiled_modules import COMPILATIONS
from spec_tests.strategies.layers import seeded
from spec_tests.strategies.modules import Layer, ModuleSpec
from spec_tests.strategies.replicate import ReplicateCall, slot_lists
from spec_tests.strategies.tensors import device_slots

NETWORKS = st.sampled_from(
    [
        ModuleSpec((Layer("linear"), Layer("tanh"))),
        ModuleSpec((Layer("linear"), Layer("layer_norm"), Layer("linear", frozen=True))),
    ]
)
#: Decorator that runs an eighth of the usual examples, because each example compiles a module.
FEWER_EXAMPLES = profiles.divide_examples(8)

#: torch.compile reads ``.grad`` of the parameters of replicas, which are not leaves.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)
LINEAR = ModuleSpec((Layer("linear"),))


@dataclass(frozen=True)
class CompiledNetwork:
    """A description of a network, a key of `COMPILATIONS`, and a backend of torch.compile."""

    network: ModuleSpec
    compilation: str
    backend: str

    def rows(self, *args, **kwargs):
        return self.network.rows(*args, **kwargs)

    def build(self, topology, slot=0):
        torch.compiler.reset()
        network = self.network.build(topology, slot)
        return seeded(COMPILATIONS[self.compilation], network, self.backend)


@pytest.fixture(autouse=True)
def reset_compiler():
    """Reset the compiler: code of other tests counts towards PyTorch's recompilation limit."""
    torch.compiler.reset()


@clause("divergences.RE-1.compiled-modules-stay-as-they-were")
@pytest.mark.parametrize("compilation", COMPILATIONS)
@FEWER_EXAMPLES
@given(network=NETWORKS, slots=slot_lists(), detach=st.booleans())
def test_replicate_leaves_a_compiled_module_unchanged(
    target, topology, compilation, network, slots, detach
):
    module = CompiledNetwork(network, compilation, "eager").build(topology, slots[0])
    before = laws.attribute_ids(module)
    target.replicate.replicate(module, topology.take(slots), detach)
    laws.check_attributes_kept(module, before, network)


@clause("divergences.RE-1.replicas-of-compiled-modules-compute")
@pytest.mark.parametrize(
    ("backend", "compilation"), [("eager", "torch.compile(m)"), ("aot_eager", "a compiled child")]
)
@FEWER_EXAMPLES
@given(network=NETWORKS, slots=slot_lists(max_size=2), detach=st.booleans())
def test_replicas_return_the_outputs_of_the_compiled_module(
    target, topology, compilation, backend, network, slots, detach
):
    call = ReplicateCall(CompiledNetwork(network, compilation, backend), slots, detach)
    found, expected = laws.outputs(call, target, topology)
    checks.same(found, expected, call, tolerance=checks.LAYER)


@clause("divergences.RE-1.gradients-of-compiled-modules")
@pytest.mark.parametrize(
    ("backend", "compilation"), [("aot_eager", "torch.compile(m)"), ("eager", "a compiled child")]
)
@FEWER_EXAMPLES
@given(network=NETWORKS, slots=slot_lists(max_size=2))
def test_gradients_of_replicas_are_summed_in_the_compiled_module(
    target, topology, compilation, backend, network, slots
):
    call = ReplicateCall(CompiledNetwork(network, compilation, backend), slots)
    found, expected = laws.gradients(call, target, topology)
    checks.same(found, expected, call, tolerance=checks.LAYER)


@clause("divergences.RE-1.replicas-of-compiled-modules-compute")
@FEWER_EXAMPLES
@given(slots=device_slots())
def test_replicas_of_a_module_compiled_in_place_use_their_own_weights(target, topology, slots):
    module = CompiledNetwork(LINEAR, "m.compile()", "eager").build(topology, slots[0])
    for replica in target.replicate.replicate(module, topology.take(slots)):
        replica[0].weight = torch.zeros_like(replica[0].weight)
        found = replica(torch.ones(2, 4, device=replica[0].weight.device))
        checks.same(found.tolist(), [replica[0].bias.tolist()] * 2, slots)


@clause("divergences.RE-1.gradients-of-compiled-modules")
@FEWER_EXAMPLES
@given(slots=device_slots())
def test_gradients_flow_through_replicas_of_a_module_compiled_in_place(target, topology, slots):
    module = CompiledNetwork(LINEAR, "m.compile()", "aot_eager").build(topology, slots[0])
    for replica in target.replicate.replicate(module, topology.take(slots)):
        replica[0].weight = replica[0].weight * 3
        found = replica(torch.ones(2, 4, device=replica[0].weight.device))
        (gradient,) = torch.autograd.grad(found.sum(), module[0].weight)
        checks.same(gradient.tolist(), [[6.0] * 4] * 4, slots)
