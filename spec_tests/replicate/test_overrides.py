"""replicate: classes that have their own idea of copying, of setting attributes, of equality."""

import pytest
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.custom_modules import Demanding, Labelled, Logged, Slotted, Unhashable
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.replicate import zoo_calls
from spec_tests.strategies.tensors import device_slots

#: What replication sets on a module with one child, one parameter and one buffer.
ASSIGNED = [("buffer", "Tensor"), ("child", "Linear"), ("weight", "Tensor")]


@clause("replicate.overrides.replica-hook")
@given(call=zoo_calls("tagged"))
def test_every_module_is_copied_by_its_own_method(target, answers, topology, call):
    checks.agree(call, target, answers, topology, tolerance=checks.LAYER)


@clause("replicate.overrides.setattr")
@given(slots=device_slots())
def test_an_override_of_setattr_sees_every_assignment(target, topology, slots):
    module = Logged().to(topology.device(slots[0]))
    module.log.clear()
    target.replicate.replicate(module, topology.take(slots))
    checks.same(sorted(module.log), sorted(ASSIGNED * len(slots)), slots)


@clause("replicate.overrides.setattr")
@given(call=zoo_calls("logged"))
def test_an_override_of_setattr_changes_nothing(target, answers, topology, call):
    checks.agree(call, target, answers, topology, tolerance=checks.LAYER)


@clause("replicate.overrides.unhashable")
@given(slots=device_slots())
def test_a_module_without_a_hash_is_refused(target, topology, slots):
    module = Unhashable(WIDTH, WIDTH).to(topology.device(slots[0]))
    with pytest.raises(TypeError, match="unhashable type: 'Unhashable'"):
        target.replicate.replicate(module, topology.take(slots))


@clause("replicate.overrides.new")
@given(slots=device_slots())
def test_a_module_that_cannot_be_made_empty_is_refused(target, topology, slots):
    module = Demanding(WIDTH).to(topology.device(slots[0]))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'width'"):
        target.replicate.replicate(module, topology.take(slots))


@clause("replicate.overrides.attributes-of-new")
@given(slots=device_slots())
def test_attributes_that_the_source_gave_up_are_not_in_replicas(target, topology, slots):
    module = Labelled().to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same([hasattr(each, "label") for each in replicas], [False] * len(slots), slots)


@clause("replicate.overrides.slots")
@given(slots=device_slots())
def test_attributes_in_slots_are_not_copied(target, topology, slots):
    module = Slotted().to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same([hasattr(each, "kept_apart") for each in replicas], [False] * len(slots), slots)
