"""replicate: classes that override copying, attributes, hashing or construction."""

import pytest
from hypothesis import given
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.custom_modules import AssignmentLogger, SlotsLinear
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.tensors import device_slots


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


class LabelDeleted(nn.Linear):
    """A linear layer whose ``__new__`` sets an attribute that its ``__init__`` deletes."""

    def __new__(cls):
        instance = super().__new__(cls)
        vars(instance)["label"] = "new"
        return instance

    def __init__(self):
        super().__init__(WIDTH, WIDTH)
        del self.label


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
    assigned = [("buffer", tensor), ("child", "Linear"), ("weight", tensor)]
    checks.same(sorted(module.log), sorted(assigned * len(slots)), slots)


@clause("replicate.overrides.unhashable")
@given(slots=device_slots())
def test_an_unhashable_module_is_refused(target, topology, slots):
    module = UnhashableLinear(WIDTH, WIDTH).to(topology.device(slots[0]))
    with pytest.raises(TypeError, match="unhashable type: 'UnhashableLinear'"):
        target.replicate.replicate(module, topology.take(slots))


@clause("replicate.overrides.new")
@given(slots=device_slots())
def test_a_class_whose_new_needs_arguments_is_refused(target, topology, slots):
    module = RequiresArguments(WIDTH).to(topology.device(slots[0]))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'width'"):
        target.replicate.replicate(module, topology.take(slots))


@clause("replicate.overrides.attributes-of-new")
@given(slots=device_slots())
def test_attributes_deleted_from_the_module_are_not_in_replicas(target, topology, slots):
    module = LabelDeleted().to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same([hasattr(replica, "label") for replica in replicas], [False] * len(slots), slots)


@clause("replicate.overrides.slots")
@given(slots=device_slots())
def test_attributes_in_slots_are_not_copied(target, topology, slots):
    module = SlotsLinear().to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same(
        [hasattr(replica, "slot_attribute") for replica in replicas], [False] * len(slots), slots
    )
