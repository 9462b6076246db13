"""replicate: classes that override methods of Module, and classes that cannot be copied."""

import pytest
from hypothesis import given
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.module_kinds import AssignmentLogger
from spec_tests.strategies.tensors import device_slots


class SlotsLinear(nn.Linear):
    """A linear layer with one attribute in ``__slots__``."""

    __slots__ = ("slot_attribute",)

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.slot_attribute = 7


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
    kind = type("LateLogger", (AssignmentLogger,), {"__setattr__": nn.Module.__setattr__})
    module = kind().to(topology.device(slots[0]))
    target.replicate.replicate(module, topology.take(slots))
    del kind.__setattr__  # From now on, the class has the override of its base class.
    module.log.clear()
    target.replicate.replicate(module, topology.take(slots))
    tensor = type(module.buffer).__name__  # Some devices have a class of their own.
    assigned = [("buffer", tensor), ("child", "Tanh"), ("weight", tensor)]
    checks.same(sorted(module.log), sorted(assigned * len(slots)), slots)


#: Clause -> a class, its argument, and the text of the error.
REFUSED = {
    "replicate.overrides.unhashable": [
        (UnhashableLinear, (WIDTH, WIDTH), "unhashable type: 'UnhashableLinear'")
    ],
    "replicate.overrides.new": [
        (RequiresArguments, (WIDTH,), "missing 1 required positional argument: 'width'")
    ],
}


@cases("module_class, args, text", REFUSED)
@given(slots=device_slots())
def test_a_class_that_replicate_cannot_copy_is_refused(
    target, topology, module_class, args, text, slots
):
    module = module_class(*args).to(topology.device(slots[0]))
    with pytest.raises(TypeError, match=text):
        target.replicate.replicate(module, topology.take(slots))


@clause("replicate.overrides.slots")
@given(slots=device_slots())
def test_attributes_in_slots_are_not_copied(target, topology, slots):
    module = SlotsLinear().to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same(
        [hasattr(replica, "slot_attribute") for replica in replicas], [False] * len(slots), slots
    )
