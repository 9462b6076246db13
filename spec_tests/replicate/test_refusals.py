"""replicate: what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness import checks
from spec_tests.harness.clauses import clause
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.modules import module_specs
from spec_tests.strategies.replicate import OnTheCpu
from spec_tests.strategies.zoo import Specimen


class Lazy(nn.LazyLinear):
    """A module that gets its shape from its first input."""

    def __init__(self):
        super().__init__(2)


class Unfinished(nn.Module):
    """A module with a parameter that has no shape yet, and no way to give it one."""

    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter()


@clause("replicate.refused.lazy")
@pytest.mark.parametrize(
    ("make", "detach"),
    [(Lazy, False), (Lazy, True), (Unfinished, False)],
    ids=["lazy", "lazy-detached", "plain"],
)
@given(before=st.integers(0, 2), count=st.integers(2, 3))
def test_parameters_without_a_shape_are_refused(target, topology, make, detach, before, count):
    layers = [nn.Linear(2, 2) for _ in range(before)]
    module = nn.Sequential(*layers, make()).to(topology.device(0))
    with pytest.raises((ValueError, RuntimeError), match="uninitialized parameter"):
        target.replicate.replicate(module, topology.take(count), detach)


@clause("replicate.refused.elsewhere")
@given(spec=module_specs(kinds=("linear", "batch_norm")), detach=st.booleans())
def test_a_module_on_another_device_is_refused(target, reference, topology, spec, detach):
    topology.require(distinct=2)
    arguments = {"network": spec, "devices": topology.take([1, 0]), "detach": detach}
    call = PublicCall("replicate.replicate", arguments)
    checks.agree(call, target, reference, topology)


@clause("replicate.refused.on-the-cpu")
@given(spec=module_specs(kinds=("linear", "batch_norm")), detach=st.booleans())
def test_a_module_on_the_cpu_is_refused(target, reference, topology, spec, detach):
    arguments = {"network": OnTheCpu(spec), "devices": topology.take(2), "detach": detach}
    call = PublicCall("replicate.replicate", arguments)
    checks.agree(call, target, reference, topology)


@clause("replicate.refused.negative-device")
@given(spec=module_specs(kinds=("linear", "batch_norm")), detach=st.booleans())
def test_a_negative_ordinal_is_refused(target, reference, topology, spec, detach):
    devices = [topology.device(0), -1]
    arguments = {"network": spec, "devices": devices, "detach": detach}
    call = PublicCall("replicate.replicate", arguments)
    checks.agree(call, target, reference, topology)


@clause("replicate.zero-grad")
@given(detach=st.booleans())
def test_clearing_gradients_of_a_replica_warns(target, topology, detach):
    module = Specimen("linear").build(topology)
    for replica in target.replicate.replicate(module, topology.take(2), detach):
        with pytest.warns(UserWarning, match="has no effect"):
            replica.zero_grad()
