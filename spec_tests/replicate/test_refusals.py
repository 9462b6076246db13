"""replicate: refused modules and devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.checks.refusals import refused
from spec_tests.machine import capabilities
from spec_tests.machine.clauses import clause, error_of
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.modules import Placed, module_specs


def _replicate(network, devices, detach):
    arguments = {"network": network, "devices": devices, "detach": detach}
    return KeywordCall("replicate.replicate", arguments)


def lazy_layer():
    return nn.LazyLinear(2)


def plain_module():
    return nn.ParameterList([nn.UninitializedParameter()])


@clause("replicate.refused.lazy")
@pytest.mark.parametrize(
    ("make", "detach"), [(lazy_layer, False), (lazy_layer, True), (plain_module, False)]
)
@given(preceding=st.integers(0, 2), count=st.integers(2, 3))
def test_uninitialized_parameters_are_refused(target, topology, make, detach, preceding, count):
    capabilities.require("kept-parameters")
    layers = [nn.Linear(2, 2) for _ in range(preceding)]
    module = nn.Sequential(*layers, make()).to(topology.device(0))
    with pytest.raises((ValueError, RuntimeError), match="uninitialized parameter"):
        target.replicate.replicate(module, topology.take(count), detach)


@clause("replicate.refused.elsewhere")
@given(spec=module_specs(kinds=("linear", "batch_norm")), detach=st.booleans())
def test_a_module_on_another_device_is_refused(target, topology, spec, detach):
    topology.require(distinct=2)
    call = _replicate(spec, [DeviceAt(1), DeviceAt(0)], detach)
    ordinal = topology.device(1).index
    refused(call, target, topology, error_of("replicate.refused.elsewhere", ordinal=ordinal))


@clause("replicate.refused.on-the-cpu")
@pytest.mark.parametrize("detach", [False, True])
@given(spec=module_specs(kinds=("linear", "batch_norm")))
def test_a_module_on_the_cpu_is_refused(target, topology, detach, spec):
    call = _replicate(Placed(spec), [DeviceAt(0), DeviceAt(1)], detach)
    # Without detach, the text names no device.
    error = error_of("replicate.refused.on-the-cpu", int(detach), ordinal=topology.ordinals[0])
    refused(call, target, topology, error)


@clause("replicate.refused.negative-device")
@given(spec=module_specs(kinds=("linear", "batch_norm")), detach=st.booleans())
def test_replicate_refuses_a_negative_ordinal(target, topology, spec, detach):
    call = _replicate(spec, [DeviceAt(0), -1], detach)
    refused(call, target, topology, error_of("replicate.refused.negative-device", ordinal=-1))
