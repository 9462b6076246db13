"""replicate: modules with containers, computed weights or hooks, and layers of torch.nn."""

from dataclasses import replace

from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.replica_laws import flat_weights_are_shared
from spec_tests.harness.conformance.clauses import cases, clause
from spec_tests.strategies.computed_modules import computed
from spec_tests.strategies.edge_case_modules import EdgeCaseModule
from spec_tests.strategies.replicate import edge_case_module_calls
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


@clause("replicate.zoo.flat-weights")
@given(slots=device_slots())
def test_flattened_weights_are_the_replicas_copies(target, topology, slots):
    # PyTorch 1.4: replicate overwrote the module's own list of flattened weights (#33552).
    module = EdgeCaseModule("lstm").build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same(
        [flat_weights_are_shared(network) for network in (module, *replicas)],
        [[True] * 4] * (len(slots) + 1),
    )


@clause("replicate.zoo.without-tensors")
@given(call=edge_case_module_calls("empty", "tanh"))
def test_modules_without_tensors_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)
