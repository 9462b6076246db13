"""replicate: modules with containers, computed weights or hooks, and layers of torch.nn."""

from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.replica_laws import flat_weights_are_shared
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.edge_case_modules import EdgeCaseModule
from spec_tests.strategies.replicate import edge_case_module_calls
from spec_tests.strategies.tensors import device_slots


@clause("replicate.zoo.parameter-containers")
@given(call=edge_case_module_calls("lists", "dicts"))
def test_parameter_lists_and_dictionaries_are_replicated(target, baselines, topology, call):
    # PyTorch 1.5: ParameterList and ParameterDict were empty in replicas (#36035, #42327).
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.parametrized")
@given(call=edge_case_module_calls("weight_norm", "spectral_norm", "orthogonal"))
def test_parametrized_weights_are_computed_from_the_replicas_copies(
    target, baselines, topology, call
):
    # PyTorch 0.2: a weight computed from other parameters did not work in replicas (#2720).
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.computed-before-forward")
@given(call=edge_case_module_calls("weight_norm_hook", "spectral_norm_hook", "pruned"))
def test_weights_set_by_a_hook_are_computed_from_the_replicas_copies(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.hooks")
@given(call=edge_case_module_calls("hooks"))
def test_hooks_are_called_with_the_replica(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.recurrent")
@given(call=edge_case_module_calls("lstm", "gru", "rnn", "projected_lstm"))
def test_recurrent_layers_are_replicated(target, baselines, topology, call):
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


@clause("replicate.zoo.attention")
@given(call=edge_case_module_calls("transformer"))
def test_transformer_layers_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.graph-modules")
@given(call=edge_case_module_calls("graph"))
def test_graph_modules_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.observers")
@given(call=edge_case_module_calls("observers"))
def test_quantization_observers_keep_the_statistics_of_the_first_replica(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.materialised")
@given(call=edge_case_module_calls("materialised"))
def test_materialized_lazy_layers_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.embeddings")
@given(call=edge_case_module_calls("embedding", "sparse_embedding"))
def test_embeddings_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.zoo.without-tensors")
@given(call=edge_case_module_calls("empty", "tanh"))
def test_modules_without_tensors_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)
