"""replicate: kinds of modules, such as containers, computed weights, hooks and graphs."""

from dataclasses import replace

from hypothesis import given

from spec_tests import checks
from spec_tests.machine.clauses import cases
from spec_tests.strategies.module_kinds import ModuleOfKind
from spec_tests.strategies.replicate import module_kind_calls
from spec_tests.strategies.supported_layers import computed

#: For each clause: kinds of modules.
KINDS_OF_CLAUSES = {
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


@cases("kind", KINDS_OF_CLAUSES)
@given(call=module_kind_calls("linear"))
def test_modules_of_each_kind_are_replicated(target, baselines, topology, kind, call):
    (computed_kind,) = computed([kind])
    call = replace(call, network=ModuleOfKind(computed_kind))
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)
