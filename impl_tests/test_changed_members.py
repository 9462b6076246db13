"""Changed members, references to modules, and hooks: lanes, hold(), replicate and errors."""

from collections import UserDict, UserList
from functools import partial
from operator import attrgetter
from types import MappingProxyType, MethodType, SimpleNamespace
from weakref import WeakSet

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import impl
from spec_tests.data_parallel.wrapped_module import results_of, with_gradients
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.strategies.changed_members import changes_members_specs
from spec_tests.strategies.references import referring_specs

LANES = ["cpu", "cpu"]
SPEC = changes_members_specs()


@given(spec=SPEC, rows=st.integers(2, 5), in_turn=st.booleans(), grad=st.booleans())
def test_lanes_compute_what_the_module_computes(topology, spec, rows, in_turn, grad):
    x = spec.network.rows(rows, requires_grad=True, slot=None).build(topology)
    module = spec.build(topology, None)
    leaves = [x, *filter(attrgetter("requires_grad"), module.parameters())]
    with torch.set_grad_enabled(grad):
        found = impl.DataParallel(module, LANES, in_turn=in_turn)(x)
        expected = module(x)
    found, expected = with_gradients(found, leaves), with_gradients(expected, leaves)
    checks.same(found, expected, spec, tolerance=checks.LAYER)


@given(spec=SPEC, rows=st.integers(2, 5), slots=st.sampled_from([(0, 1), (0, 0, 1), (None, None)]))
def test_held_replicas_compute_what_the_module_computes(topology, spec, rows, slots):
    x = spec.network.rows(rows, slot=slots[0]).build(topology)
    module = spec.build(topology, slots[0])
    wrapper = impl.DataParallel(module, topology.take(slots))
    with torch.no_grad(), wrapper.hold():
        found = wrapper(x), wrapper(x)
    with torch.no_grad():
        expected = module(x)
    for output in found:
        checks.same(output, expected, spec, tolerance=checks.LAYER)


@pytest.mark.parametrize("with_parameters", [False, True], ids="with_parameters={}".format)
@given(spec=SPEC)
def test_a_member_of_a_replica_is_in_one_place(topology, spec, with_parameters):
    network = spec.build(topology)
    for replica in impl.replicate(network, topology.take(2), with_parameters=with_parameters):
        for module in replica.modules():
            places = [vars(module), module._parameters, module._buffers, module._modules]
            names = [name for place in places for name in dict(place.items())]
            assert len(names) == len({*names})


REFERRING = referring_specs(hooks=False) | referring_specs(hooks=True)
ROWS = st.lists(st.sampled_from([4, 6]), min_size=1, max_size=2)


@given(spec=REFERRING, rows=ROWS, in_turn=st.booleans(), grad=st.booleans())
def test_references_and_hooks_run_on_the_replica_of_a_lane(topology, spec, rows, in_turn, grad):
    batches = [spec.network.rows(count, slot=None).build(topology) for count in rows]
    with torch.set_grad_enabled(grad):
        found, expected = (
            results_of(
                spec.build(topology, None, plain=plain),
                lambda module: impl.DataParallel(module, LANES, in_turn=in_turn),
                batches,
            )
            for plain in (False, True)
        )
    checks.same(found, expected, spec, tolerance=checks.LAYER)


@given(spec=REFERRING, rows=ROWS, slots=st.sampled_from([(0, 1), (None, None)]))
def test_references_and_hooks_run_on_held_replicas(topology, spec, rows, slots):
    batches = [spec.network.rows(count, slot=slots[0]).build(topology) for count in rows]
    results = []
    for plain in (False, True):
        wrapper = impl.DataParallel(
            spec.build(topology, slots[0], plain=plain), topology.take(slots)
        )
        with torch.no_grad(), wrapper.hold():
            results.append([wrapper(x) for x in batches])
    found, expected = (snapshot(each, {}) for each in results)
    checks.same(found, expected, spec, tolerance=checks.LAYER)


class Calls(nn.Module):
    """A module that calls its attribute ``function``, which ``make`` makes of a layer."""

    def __init__(self, make):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.function = make(self.layer)

    def forward(self, x):
        return self.function(x)


class Helper:
    """An object that calls a layer."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return self.layer(x)


def closure(layer):
    return lambda x: layer(x)


def wrapped_closure(layer):
    old = layer.forward

    def call(x):
        return closure(old)(x)

    return call


def method_with_a_closure(layer):
    old = layer.forward
    return MethodType(lambda module, x: old(x), layer)


@pytest.mark.filterwarnings("ignore:The function")
@pytest.mark.parametrize("make", [closure, wrapped_closure, method_with_a_closure, Helper])
def test_a_device_error_names_the_attribute_that_holds_the_original(topology, make):
    topology.require(distinct=2)
    devices = topology.take(2)
    wrapper = impl.DataParallel(Calls(make).to(devices[0]), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.ones(4, 2, device=devices[0]))
    (note,) = caught.value.__notes__
    assert note.startswith(
        f"Attribute 'function' of the module holds Linear, which is not the copy on {devices[1]}"
    )
    assert "types.MethodType" in note


def test_a_device_error_names_an_argument_that_is_a_module(topology):
    topology.require(distinct=2)

    class CallsArgument(nn.Module):
        def forward(self, x, layer):
            return layer(x)

    devices = topology.take(2)
    wrapper = impl.DataParallel(CallsArgument(), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.ones(4, 2, device=devices[0]), nn.Linear(2, 2).to(devices[0]))
    (note,) = caught.value.__notes__
    assert note.startswith("An argument holds Linear")


@pytest.mark.parametrize(
    "make", [closure, method_with_a_closure, lambda layer: partial(closure(layer))]
)
def test_lanes_warn_once_of_a_closure_over_a_module_of_the_tree(make):
    wrapper = impl.DataParallel(Calls(make), LANES)
    with pytest.warns(UserWarning, match=r"closure\.<locals>\.<lambda>.* refers to Linear"):
        wrapper(torch.ones(2, 2))
    wrapper(torch.ones(2, 2))  # A second warning would be an error.


def test_lanes_warn_of_a_hook_that_is_a_closure():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.layer.register_forward_hook(lambda *args: setattr(self, "kept", args[-1]))

        def forward(self, x):
            return self.layer(x)

    with pytest.warns(UserWarning, match="refers to Keeping"):
        impl.DataParallel(Keeping(), LANES)(torch.ones(2, 2))


class Slots:
    __slots__ = ("layer",)

    def __init__(self, layer):
        self.layer = layer


@pytest.mark.parametrize(
    "make",
    [
        *(lambda layer: SimpleNamespace(x=[layer]), Slots, lambda layer: UserDict(a=layer)),
        *(lambda layer: MappingProxyType({"a": layer}), lambda layer: WeakSet([layer])),
        *(lambda layer: Slots(layer.forward), lambda layer: UserList([closure(layer)])),
        *(lambda layer: [layer, Slots(layer)], lambda layer: {"a": [1, (Slots(layer),)]}),
        *(lambda layer: [closure(layer)], lambda layer: partial(print, Slots(layer))),
    ],
)
def test_lanes_warn_once_of_an_object_that_refers_to_a_module_of_the_tree(make):
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.held, self.other = make(self.layer), make(nn.Linear(2, 2))

        def forward(self, x):
            return self.layer(x)

    wrapper = impl.DataParallel(Holds(), LANES)
    with pytest.warns(UserWarning, match="refers to Linear") as warned:
        wrapper(torch.ones(2, 2))
    assert len(warned) == 1
    wrapper(torch.ones(2, 2))  # A second warning would be an error.


def test_lanes_do_not_warn_of_objects_that_a_forward_does_not_call():
    class Initialized(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.handles = [self.register_forward_pre_hook(self.initialize)]
            self.register_load_state_dict_pre_hook(self.rename)

        def initialize(self, *_):
            self.handles[0].remove()

        @staticmethod
        def rename(*_):
            pass

    impl.DataParallel(Initialized(), LANES)(torch.ones(2, 2))  # A warning would be an error.


@pytest.mark.parametrize(
    "function", [torch.tanh, lambda x: x, closure(nn.functional.relu), nn.Linear(2, 2).forward]
)
def test_other_functions_stay_the_same_object_without_a_warning(function):
    module = Calls(lambda layer: function)
    for replica in impl.replicate(module, LANES, with_parameters=True):
        assert replica.function is module.function


def test_a_forward_that_freezes_parameters_is_refused_with_a_note():
    class Freezing(nn.Linear):
        def forward(self, x):
            self.weight.requires_grad = False
            return super().forward(x)

    with pytest.raises(RuntimeError, match="leaf") as caught:
        impl.DataParallel(Freezing(2, 2), LANES)(torch.ones(2, 2))
    assert "outside of the forward" in caught.value.__notes__[-1]


def test_a_tensor_that_is_loaded_as_a_parameter_is_refused_with_a_note():
    class Loading(nn.Linear):
        def forward(self, x):
            self.load_state_dict(self.state_dict(), assign=True)
            return super().forward(x)

    with pytest.raises(RuntimeError, match="weight") as caught:
        impl.DataParallel(Loading(2, 2), LANES)(torch.ones(2, 2))
    assert "pass nn.Parameter values" in caught.value.__notes__[-1]
