"""The state machine: rules that call wrappers, and the comparison after each rule."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from torch import Tensor

from spec_tests import checks
from spec_tests.checks.outcome import seed_generators
from spec_tests.checks.snapshot import snapshot
from spec_tests.data_parallel.life import log, violations
from spec_tests.data_parallel.life.program import LifeError
from spec_tests.data_parallel.life.root import STRUCTURES, Root, take_called
from spec_tests.data_parallel.life.side import Side
from spec_tests.failure import CheckError
from spec_tests.machine import capabilities
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target
from spec_tests.oracle import naive
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.modules import Layer, ModuleSpec, flatten, module_specs
from spec_tests.strategies.tensors import device_slots

#: Kinds of layers. All can be pickled, and can be converted to another dtype.
LAYERS_OF_A_LIFE = (
    *("linear", "batch_norm", "linear_without_bias", "layer_norm", "none_entries", "grad_buffer"),
    *("shared_buffer", "counter", "lists", "dicts", "scalar", "tanh"),
)
#: Orders of forwards (``f``, or ``n`` without grad mode) and of backwards of the last result
#: (``l``), the oldest (``o``) or all (``a``). Capital letters pass a keyword tensor, or retain the
#: graph.
ORDERS = ("fan", "FaN", "fflo", "FFol", "fAa", "FfLaN", "nnn")
_RESULTS = {"l": (-1, None), "o": (0, 1), "a": (0, None)}
#: The tolerance for each dtype of a network, whose gradients may be summed in another order. Terms
#: of gradients are up to about 100, which float16 rounds by 2**-11 of their size. Batch norm of
#: nearly equal rows divides by the root of its eps, 0.003, so it multiplies roundings by up to 316
#: in each step of an optimizer. Networks with batch norm begin with float64 where there is one.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 1e-1}


def step(**arguments: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Return the decorator of a rule that draws ``arguments`` and changes the modules.

    After the rule, both wrappers run forward and backward in one of `ORDERS`, and are compared. If
    the rule fails, the error has a program of all rules so far.
    """
    arguments = arguments | {"order": st.sampled_from(ORDERS)}
    decorate: Callable[..., Any] = rule(**arguments)  # type: ignore[call-overload]  # no overload has only **kwargs
    return lambda function: decorate(recorded(function))


def recorded(function: Callable[..., None]) -> Callable[..., None]:
    """Return a rule that compares both wrappers afterwards."""

    @functools.wraps(function)
    def compared(life: "Life", **arguments: Any) -> None:
        life.steps.append((function.__name__, arguments))
        try:
            function(life, **{name: arguments[name] for name in arguments.keys() - {"order"}})
            life.train(arguments.get("order", ""))
            life.compare()
        except Exception as error:
            fixtures = life.target, life.topology, life.known
            raise LifeError(error, type(life), *fixtures, life.steps) from error

    return compared


class Life(RuleBasedStateMachine):
    """A life of forward, backward and optimizer steps. Subclasses add rules.

    Args:
        target: The implementation under test.
        topology: The devices.
        known: The clauses that the target violates.
    """

    devices: list[torch.device]
    places: tuple[list[torch.device], torch.device, int]
    found: Side
    expected: Side

    def __init__(self, target: Target, topology: Topology, known: frozenset[str]) -> None:
        super().__init__()
        self.target, self.topology, self.known = target, topology, known
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self.device_before = torch.accelerator.current_device_index()

    @initialize(
        net=module_specs(kinds=LAYERS_OF_A_LIFE, max_layers_per_level=3),
        slots=device_slots(min_size=2) | device_slots() | st.just((None, None)),
        output=st.none() | st.integers(0, 3),
        dim=st.sampled_from([0, 1, -1]),
        structure=st.sampled_from([*STRUCTURES]),
        current=st.integers(0, 3),
        training=st.sampled_from([None, False, True]),
    )
    @recorded
    def wrap(
        self,
        net: ModuleSpec,
        slots: tuple[int | None, ...],
        output: int | None,
        dim: int,
        structure: str,
        current: int,
        training: bool | None,
    ) -> None:
        """Wrap a network for the devices ``slots``, while another device is current.

        The wrapper is in training mode and the network has its own, unless ``training`` is given.
        """
        if None in slots and violations.CPU_DEVICES in self.known:
            slots = (0, 1)
        devices = [self.topology.device(slot) for slot in slots]
        if violations.SHARED_COPIES in self.known and _kinds(net) & {"batch_norm", "counter"}:
            devices = list(dict.fromkeys(devices))
        if "batch_norm" in _kinds(net) and capabilities.offers("float64"):
            net = replace(net, dtype=torch.float64)
        wrap, function = self.target.data_parallel.DataParallel, self.target.data_parallel
        self.net, self.slot, self.dim, self.structure = net, slots[0], dim, structure
        self.set_places(devices, output)
        self.dtype, self.tolerance = net.dtype, TOLERANCES[net.dtype]
        seed_generators()
        self.found = Side(
            lambda module: wrap(module, *self.ordinals()),
            lambda module, args, kwargs: function.data_parallel(
                module, args, *self.ordinals(), kwargs
            ),
            wrap(self.new_module(), *self.ordinals()),
        )
        self.expected = Side(
            lambda module: naive.DataParallel(module, *self.places),
            lambda module, args, kwargs: naive.DataParallel(module, *self.places)(*args, **kwargs),
            naive.DataParallel(self.new_module(), *self.places),
        )
        torch.accelerator.set_device_index(self.topology.device(current).index)
        if training is not None:
            self.each(lambda side: side.wrapper.train(training).training)

    def set_places(self, devices: list[torch.device], output: int | None) -> None:
        """Set the devices and the device number ``output`` of the joined outputs."""
        one = len(devices) == 1 and violations.OUTPUT_OF_ONE_DEVICE in self.known
        # Outputs on the CPU are joined on the CPU.
        first = output is None or one or devices[0].type == "cpu"
        joined = devices[0] if first else self.topology.device(output)
        self.devices, self.places = devices, (devices, joined, self.dim)

    def ordinals(self) -> tuple[list[Any], Any, int]:
        """Return the devices, the device of the outputs and ``dim``. The CPU has no ordinal."""
        devices, joined, dim = self.places
        if joined.type == "cpu":
            return self.places
        return [each.index for each in devices], joined.index, dim

    def new_module(self) -> Root:
        """Return a new module on the first device."""
        net = self.net.build(self.topology, self.slot)
        return Root(net, self.dim, self.structure).to(self.dtype)

    def each(self, change: Callable[[Side], Any]) -> None:
        """Change both sides. Their results must be equal."""
        self.check(self.found.run(change), self.expected.run(change))

    def check(self, found: Any, expected: Any) -> None:
        """Raise a CheckError if results differ. Its text shows the error of the target."""
        try:
            checks.same(found, expected, tolerance=self.tolerance)
        except CheckError as error:
            raise CheckError(f"{error}{self.found.error}", error.failure) from None

    def change(self, change: Callable[[Root], Any]) -> None:
        """Change both modules. The results of earlier forwards are dropped."""
        self.drop()
        self.each(lambda side: change(side.wrapper.module))

    def drop(self) -> None:
        """Drop the results of forwards whose backward has not run; change the keyword tensors."""
        self.found.drop()
        self.expected.drop()

    def compare(self) -> None:
        """Raise an AssertionError if the sides differ."""
        zeros = violations.ZERO_GRADIENTS in self.known
        sides = self.found.state(zero_gradients=zeros), self.expected.state(zero_gradients=zeros)
        found, expected = (snapshot(side, {}, strides=False) for side in sides)
        checks.same(found, expected, tolerance=self.tolerance)

    def teardown(self) -> None:
        """Restore the current device."""
        torch.accelerator.set_device_index(self.device_before)
        log.take()
        take_called()

    @rule(
        rows=st.sampled_from([4, 2, 3, 1, 5, 6, 8, 9]),
        mode=st.sampled_from(["grad", "grad", "no_grad", "inference", "autocast"]),
        keywords=st.sampled_from([(), ("weight",), ("offset",), ("weight", "offset"), ("x",)]),
        functional=st.booleans(),
        on_cpu=st.booleans(),
        requires_grad=st.booleans(),
    )
    @recorded
    def forward(
        self,
        rows: int,
        mode: str,
        keywords: tuple[str, ...],
        functional: bool,
        on_cpu: bool,
        requires_grad: bool,
    ) -> None:
        """Call the wrapper, or the function if the target has it, with a new batch."""
        functional = functional and self.target.data_parallel.offers("data_parallel")
        offset = {"offset": 0.5}
        if "offset" not in keywords or violations.CONSTANTS in self.known:
            offset = {}

        def call(side: Side) -> Any:
            device = torch.device("cpu") if on_cpu else self.devices[0]
            x = self.batch(rows).to(device).requires_grad_(requires_grad)
            given = offset | (self.kept(side, rows, device) if "weight" in keywords else {})
            given |= {"weight": x} if "x" in keywords else {}
            with self.use_mode(mode):
                return side.forward(x, given, functional=functional)

        self.each(call)
        self.each(Side.results)

    def kept(self, side: Side, rows: int, device: torch.device) -> dict[str, Tensor]:
        """Return a keyword tensor for a batch: the same one in each call."""
        weight = self.batch(rows).to(device)
        return {"weight": side.kept.setdefault((rows, self.dtype, device), weight)}

    def batch(self, rows: int, place: int = 0) -> Tensor:
        """Return new rows along the dimension of the life. Row ``i`` begins with ``i``."""
        x = (
            torch.arange(float(rows * WIDTH))
            .add(len(self.steps) + place)
            .sin()
            .reshape(rows, WIDTH)
        )
        x[:, 0] = torch.arange(rows)
        return x.movedim(0, self.dim).to(self.dtype)

    def use_mode(self, mode: str) -> AbstractContextManager[Any]:
        """Return the context manager of a mode, or of grad mode if replicas see no mode."""
        if mode == "no_grad":
            return torch.no_grad()
        if mode == "inference" and violations.INFERENCE not in self.known:
            return torch.inference_mode()
        if (
            mode == "autocast"
            and violations.AUTOCAST not in self.known
            and capabilities.offers("autocast")
        ):
            self.tolerance = max(self.tolerance, TOLERANCES[torch.float16])
            return torch.autocast(self.devices[0].type, torch.bfloat16)
        return nullcontext()

    @precondition(lambda life: life.found.pending)
    @rule(results=st.sampled_from([(-1, None), (0, 1), (0, None)]), retain=st.booleans())
    @recorded
    def backward(self, results: tuple[int, int | None], retain: bool) -> None:
        """Run backward of the last forward, of the first one, or of all."""
        self.each(lambda side: side.backward(*results, retain=retain))

    @step(set_to_none=st.booleans())
    def optimize(self, set_to_none: bool) -> None:
        """Make a step of an optimizer, and delete the gradients or make them zero."""

        def change(module: Root) -> None:
            # Bounded steps do not magnify roundings. The import of torch.optim takes seconds.
            for each in module.parameters():
                if each.grad is not None:
                    each.detach().sub_(0.01 * each.grad / (1 + each.grad.abs()))
            module.zero_grad(set_to_none)

        self.change(change)

    def train(self, order: str) -> None:
        """Drop earlier results, and run forwards and backwards in one of `ORDERS`."""
        for place, letter in enumerate(order):
            if place == 0 or (letter in "nN" and order[place - 1] not in "nN"):
                self.drop()
            self.each(functools.partial(self.train_side, letter=letter, place=place))
        if order:
            self.each(Side.results)
            self.drop()

    def train_side(self, side: Side, *, letter: str, place: int) -> Any:
        """Run the forward or backward that is at ``place`` in an order."""
        if letter.lower() in _RESULTS:
            return side.backward(*_RESULTS[letter.lower()], retain=letter.isupper())
        rows = 2 * len(self.devices) - place % 2
        given = self.kept(side, rows, torch.device("cpu")) if letter.isupper() else {}
        with torch.set_grad_enabled(letter not in "nN"):
            return side.forward(self.batch(rows, place), given, functional=False)


def _kinds(net: ModuleSpec) -> set[str]:
    return {part.kind for part in flatten(net.parts) if isinstance(part, Layer)}
