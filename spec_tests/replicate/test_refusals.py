"""replicate: what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.clauses import clause
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.modules import module_specs
from spec_tests.strategies.replicate import OnTheCpu
from spec_tests.strategies.zoo import Specimen


@clause("replicate.refused.lazy")
@pytest.mark.parametrize("detach", [False, True], ids="detach={}".format)
@given(before=st.integers(0, 2), count=st.integers(1, 3))
def test_parameters_without_a_shape_are_refused(target, topology, detach, before, count):
    layers = [nn.Linear(2, 2) for _ in range(before)]
    module = nn.Sequential(*layers, nn.LazyLinear(2)).to(topology.device(0))
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
