"""replicate: refused modules and devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.checks.refusals import refused
from spec_tests.machine import capabilities
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.modules import Placed, module_specs
from spec_tests.strategies.refused_calls import (
    CPU_BROADCAST_TEXT,
    NEGATIVE_TEXT,
    OTHER_DEVICE_TEXT,
)

#: For each value of detach: class and text of the error for a module on the CPU.
CPU_MODULE_ERRORS = [
    (False, AssertionError, CPU_BROADCAST_TEXT),
    (True, RuntimeError, OTHER_DEVICE_TEXT.format(0)),
]


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
    refused(call, target, topology, RuntimeError, OTHER_DEVICE_TEXT.format(1))


@clause("replicate.refused.on-the-cpu")
@pytest.mark.parametrize(("detach", "error", "text"), CPU_MODULE_ERRORS)
@given(spec=module_specs(kinds=("linear", "batch_norm")))
def test_a_module_on_the_cpu_is_refused(target, topology, detach, error, text, spec):
    call = _replicate(Placed(spec), [DeviceAt(0), DeviceAt(1)], detach)
    refused(call, target, topology, error, text)


@clause("replicate.refused.negative-device")
@given(spec=module_specs(kinds=("linear", "batch_norm")), detach=st.booleans())
def test_replicate_refuses_a_negative_ordinal(target, topology, spec, detach):
    call = _replicate(spec, [DeviceAt(0), -1], detach)
    refused(call, target, topology, RuntimeError, NEGATIVE_TEXT)
