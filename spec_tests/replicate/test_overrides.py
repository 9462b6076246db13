"""replicate: classes that override methods of Module, and classes that cannot be copied."""

import pytest
import torch
from hypothesis import given
from torch import nn

from spec_tests import checks
from spec_tests.checks.refusals import check_error
from spec_tests.machine.clauses import clause, error_of
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.module_kinds import AssignmentLogger
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


class Slots(nn.Linear):
    """A linear layer with slots, of which one has no value."""

    __slots__ = ("empty", "factor")

    def __init__(self, width):
        super().__init__(width, width)
        self.factor = 3

    def forward(self, x):
        return super().forward(x) * self.factor * (1 + hasattr(self, "empty"))


class Listed(nn.Module, list):
    """A list of functions."""

    __hash__ = nn.Module.__hash__

    def __init__(self, width):
        nn.Module.__init__(self)
        self.layer = nn.Linear(width, width)
        list.__init__(self, [self.layer, torch.tanh])

    def forward(self, x):
        for function in self:
            x = function(x)
        return x


class Mapped(nn.Module, dict):
    """A dictionary with a layer and a number."""

    __hash__ = nn.Module.__hash__

    def __init__(self, width):
        nn.Module.__init__(self)
        self.layer = nn.Linear(width, width)
        dict.__init__(self, layer=self.layer, factor=2)

    def forward(self, x):
        return self["layer"](x) * self["factor"]


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


@clause("replicate.overrides.unhashable")
@given(slots=device_slots())
def test_a_module_of_an_unhashable_class_is_refused(target, topology, slots):
    module = UnhashableLinear(WIDTH, WIDTH).to(topology.device(slots[0]))
    with pytest.raises(TypeError) as caught:
        target.replicate.replicate(module, topology.take(slots))
    error = error_of("replicate.overrides.unhashable", name="UnhashableLinear")
    check_error(caught.value, error, topology, slots)


@clause("divergences.RE-15.members-outside-of-the-dictionary-are-copied")
@pytest.mark.parametrize("kind", [RequiresArguments, Slots, Listed, Mapped])
@given(slots=device_slots())
def test_replicas_have_members_outside_of_the_dictionary(target, topology, kind, slots):
    module, rows = kind(WIDTH).to(topology.device(slots[0])), torch.rand(2, WIDTH)
    expected = module(rows.to(topology.device(slots[0])))
    replicas = target.replicate.replicate(module, topology.take(slots))
    for replica, device in zip(replicas, topology.take(slots), strict=True):
        output = replica(rows.to(device)).to(expected.device)
        checks.same(output, expected, slots, tolerance=checks.LAYER)
