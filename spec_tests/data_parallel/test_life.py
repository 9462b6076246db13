"""DataParallel and data_parallel: many calls of one wrapper, whose module changes in between.

A class has the rules of one subject. It adds them to forward, backward and optimizer steps.
"""

import copy
import gc
import io
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from torch import nn

from spec_tests import checks
from spec_tests.checks.leaks import wait_until
from spec_tests.checks.outcome import seed_generators
from spec_tests.checks.snapshot import snapshot
from spec_tests.data_parallel.life import log, violations
from spec_tests.data_parallel.life.root import STRUCTURES
from spec_tests.data_parallel.life.state_machine import TOLERANCES, Life, step
from spec_tests.machine import capabilities, profiles
from spec_tests.machine.capabilities import dtype_name
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.modules import Layer, ModuleSpec
from spec_tests.strategies.tensors import device_slots

# Other clauses are about warnings.
pytestmark = pytest.mark.filterwarnings("ignore")

#: Draws a position in a list, modulo its length.
PLACES = st.integers(0, 9)
ERRORS = [ValueError, KeyError, StopIteration, NotImplementedError]
COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


def at(values, place):
    return values[place % len(values)]


def some(values, place):
    """Return a list of one value, or an empty list if there are no values."""
    return values and [at(values, place)]


def tensors_of(module, kind):
    """Return the tensors of a kind, each with the module that has it and its name there."""
    return [
        (each, name, tensor)
        for each in module.modules()
        for name, tensor in getattr(each, f"named_{kind}")(recurse=False)
    ]


class Modes(Life):
    @step(training=st.sampled_from([False, True]))
    def switch(self, training):
        self.each(lambda side: side.wrapper.train(training).training)

    @step(place=PLACES, training=st.sampled_from([False, True]))
    def switch_a_part(self, place, training):
        self.each(lambda side: at(side.modules, place).train(training).training)


class Hooks(Life):
    @step(
        kind=st.sampled_from(log.HOOK_KINDS),
        flags=st.sets(st.sampled_from(log.FLAGS)),
        changes=st.booleans(),
        place=PLACES,
    )
    def add_hook(self, kind, flags, changes, place):
        hook = log.Hook(kind, len(self.steps), tuple(sorted(flags)), changes)
        self.each(lambda side: side.handles.extend(hook.register(at(side.modules, place))))

    @step(place=PLACES)
    def remove_hook(self, place):
        if self.found.handles:
            self.each(lambda side: side.handles.pop(place % len(side.handles)).remove())


class Buffers(Life):
    @step(place=PLACES, in_place=st.booleans())
    def change_buffer(self, place, in_place):
        def change(module):
            for owner, name, buffer in some(tensors_of(module, "buffers"), place):
                changed = buffer.detach().add_(1) if in_place else buffer.detach() + 1
                setattr(owner, name, buffer if in_place else changed)

        self.change(change)

    @step(persistent=st.booleans(), value=st.sampled_from([1.0, 2.0, None]))
    def set_buffer(self, persistent, value):
        tensor = None if value is None else torch.full((2,), value, device=self.devices[0])
        self.change(
            lambda module: module.register_buffer("added", copy.deepcopy(tensor), persistent)
        )


class Parameters(Life):
    @step(place=PLACES, how=st.sampled_from(["in place", "data", "new"]))
    def change_parameter(self, place, how):
        def change(module):
            for owner, name, tensor in some(tensors_of(module, "parameters"), place):
                if how == "new":
                    setattr(owner, name, nn.Parameter(tensor.detach() + 0.25))
                else:
                    (tensor.data if how == "data" else tensor.detach()).mul_(0.5)

        self.change(change)

    @step(place=PLACES)
    def freeze_or_unfreeze(self, place):
        def change(side):
            for each in at(side.modules, place).parameters():
                each.requires_grad_(not each.requires_grad)

        self.drop()
        self.each(change)

    @step(place=PLACES, other=PLACES)
    def tie(self, place, other):
        def change(module):
            named = tensors_of(module, "parameters")
            for owner, name, old in some(named, place):
                equal = [new for *_, new in named if new.shape == old.shape]
                setattr(owner, name, at(equal, other))

        self.change(change)

    @step(place=PLACES)
    def add_name(self, place):
        def change(module):
            for *_, parameter in some(tensors_of(module, "parameters"), place):
                module.alias = parameter

        self.change(change)


class Submodules(Life):
    def new_layer(self):
        return nn.Linear(WIDTH, WIDTH, bias=False, dtype=self.dtype).to(self.devices[0])

    @step(shared=st.sampled_from([False, True, None]))
    def set_again(self, shared):
        layer = self.new_layer()

        def change(module):
            module.again = None
            if shared is not None:
                module.again = module.net if shared else copy.deepcopy(layer)

        self.change(change)

    @step(place=PLACES, removed=st.booleans())
    def change_layer(self, place, removed):
        layer = self.new_layer()

        def change(module):
            if len(module.net) and removed:
                module.net.pop(place % len(module.net))
            elif len(module.net):
                module.net[place % len(module.net)] = copy.deepcopy(layer)

        self.change(change)

    @step()
    def replace_module(self):
        self.drop()
        self.each(lambda side: setattr(side.wrapper, "module", self.new_module()))


class Attributes(Life):
    @step(factor=st.sampled_from([2.0, 0.5, 1.0]))
    def set_attribute(self, factor):
        self.change(lambda module: setattr(module, "factor", factor))

    @step(structure=st.sampled_from([*STRUCTURES]))
    def set_structure(self, structure):
        self.change(lambda module: setattr(module, "structure", structure))

    @step()
    def replace_list(self):
        self.change(lambda module: setattr(module, "seen", []))

    @step(slots=device_slots(), output=st.integers(0, 3))
    def set_devices(self, slots, output):
        if self.devices[0].type != "cpu":
            others = map(self.topology.device, slots)
            self.set_places(list(dict.fromkeys([self.devices[0], *others])), output)
            self.each(self.set_attributes)

    def set_attributes(self, side):
        side.drop()
        found = side is self.found
        devices, output, _ = self.ordinals() if found else self.places
        names = ("device_ids", "output_device") if found else ("devices", "output")
        vars(side.wrapper).update(zip(names, (devices, output), strict=True))


class Dtypes(Life):
    @step(dtype=st.sampled_from([torch.float64, torch.float32, torch.float16]))
    def convert(self, dtype):
        if capabilities.offers(dtype_name(dtype)):
            self.dtype, self.tolerance = dtype, max(self.tolerance, TOLERANCES[dtype])
            self.change(lambda module: bool(module.to(dtype)))


class Errors(Life):
    @step(row=st.integers(0, 7) | st.none(), error=st.sampled_from(ERRORS))
    def refuse(self, row, error):
        self.change(lambda module: vars(module).update(refused=row, error=error))


class Copies(Life):
    @step(how=st.sampled_from([*COPIES]))
    def copy_wrapper(self, how):
        self.replace_wrapper(lambda side: COPIES[how](side.wrapper))

    @step()
    def load_a_wrapper(self):
        def load(side):
            file = io.BytesIO()
            torch.save(side.wrapper.state_dict(), file)
            file.seek(0)
            wrapper = side.wrap(self.new_module())
            wrapper.load_state_dict(torch.load(file), strict=False)
            return wrapper

        self.replace_wrapper(load)

    def replace_wrapper(self, replace):
        def change(side):
            side.handles.clear()  # They remove hooks of the first wrapper.
            side.wrapper = replace(side)

        self.drop()
        self.each(change)


class Random(Modes):
    """Both wrappers begin each change in the same states of all generators."""

    def each(self, change):
        before = self.generators()
        results, states = [], []
        for side in (self.found, self.expected):
            self.set_generators(before)
            results.append(side.run(change))
            states.append(snapshot(self.generators(), {}))
        self.check(*results)
        checks.same(*states)

    def generators(self):
        module = torch.get_device_module(self.topology.accelerator)
        return [torch.get_rng_state(), *map(module.get_rng_state, self.topology.devices)]

    def set_generators(self, states):
        torch.set_rng_state(states[0])
        for state, device in zip(states[1:], self.topology.devices, strict=True):
            torch.get_device_module(device).set_rng_state(state, device)

    @step(p=st.sampled_from([0.5, 0.25, 0.0]))
    def drop_out(self, p):
        # The order of replicas that share a generator is that of their threads.
        if len(set(self.devices)) == len(self.devices):
            self.change(lambda module: setattr(module.dropout, "p", p))

    @step()
    def seed(self):
        seed_generators()


class LeavesNothing(Errors):
    """Check that replicas, inputs and outputs are freed after backward, also after an error.

    The garbage collector would free some of them in some runs only.
    """

    def __init__(self, *args):
        super().__init__(*args)
        gc.disable()

    def teardown(self):
        super().teardown()
        gc.enable()

    def compare(self):
        super().compare()
        if not self.found.pending:
            if violations.CYCLES in self.known and self.found.alive():
                gc.collect()
            wait_until(lambda: not self.found.alive())
            checks.same({"alive": self.found.alive()}, {"alive": []})
            self.found.watched.clear()


class All(
    Hooks, Buffers, Parameters, Submodules, Attributes, Copies, Dtypes, Random, LeavesNothing
):
    """All rules."""


#: For each clause: the class of its lives, the divisor of their number, and features that they
#: need.
LIVES = {
    "data_parallel.life.backward": [(Life, 1, ())],
    "data_parallel.life.modes": [(Modes, 3, ())],
    "data_parallel.life.hooks": [(Hooks, 3, ())],
    "data_parallel.life.buffers": [(Buffers, 3, ())],
    "data_parallel.life.parameters": [(Parameters, 3, ())],
    "data_parallel.life.submodules": [(Submodules, 3, ())],
    "data_parallel.life.attributes": [(Attributes, 3, ())],
    "data_parallel.life.dtypes": [(Dtypes, 3, ())],
    "data_parallel.life.errors": [(Errors, 3, ())],
    "data_parallel.life.copies": [(Copies, 3, ())],
    "data_parallel.life.random": [(Random, 3, ("seeds", "generators"))],
    "data_parallel.life.leaves-nothing": [(LeavesNothing, 3, ())],
    "data_parallel.life.all": [(All, 1, ())],
}


@cases("machine, divisor, features", LIVES)
def test_a_wrapper_lives_like_a_naive_one(target, topology, machine, divisor, features):
    for feature in features:
        capabilities.require(feature)
    known = violations.shown_by(target, topology)
    run_state_machine_as_test(
        lambda: machine(target, topology, known), settings=profiles.life_settings(divisor)
    )


@clause("data_parallel.life.hooks")
def test_hooks_of_a_layer_are_called_on_each_device(target, topology):
    life = Hooks(target, topology, violations.shown_by(target, topology))
    try:
        life.wrap(
            net=ModuleSpec((Layer("linear"),)),
            slots=(0, 1),
            output=None,
            dim=0,
            structure="tensor",
            current=0,
            training=None,
        )
        layer = life.found.modules.index(life.found.wrapper.module.net[0])
        for kind in log.HOOK_KINDS:
            life.add_hook(kind=kind, flags=set(), changes=True, place=layer, order="fan")
    finally:
        life.teardown()


@clause("data_parallel.life.random")
@given(slots=device_slots(min_size=1))
def test_masks_differ_between_calls_and_replicas_of_one_device(target, topology, slots):
    devices = topology.take([slots[0], *slots])
    wrapped = target.data_parallel.DataParallel(nn.Dropout(0.5), devices)
    batch = torch.ones(len(devices), 99, device=devices[0])
    masks = [
        tuple(mask.tolist())
        for mask, device in zip((*wrapped(batch), *wrapped(batch)), devices * 2, strict=True)
        if device == devices[0]
    ]
    assert len(set(masks)) == len(masks)
