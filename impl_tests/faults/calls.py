"""A call of a public function that can be repeated, and whose modules may raise."""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from impl._comm.grad_mode import without_grad
from spec_tests.harness import traverse
from spec_tests.harness.environment.target import Target

from .draws import MODULE_CALLS, TRANSFERS, draw
from .nets import FaultyModule, InAutocast, leaves_of, make_faulty, pass_through
from .target import ORACLE, TOPOLOGY
from .trigger import BACKWARD_PLACES, Containers, Trigger

__all__ = ["Call", "draw_call"]


class Call:
    """A call of a public function. Its arguments are made once.

    Args:
        name: The name of the function.
        drawn: The description of the call that a strategy has drawn.
        options: Keyword arguments that only impl has.
        target: The implementation under test.

    Attributes:
        ordinals: The ordinals of the devices of the call; an ordinal may occur more than once.
        leaves: The tensors whose gradients are computed.
        net: The module that runs in the call; None if no module runs.
        replicas: Whether parallel_apply runs the modules, so that errors name the replica.
    """

    def __init__(self, name: str, drawn: Any, options: Mapping[str, Any], target: Target) -> None:
        self._name, self._drawn, self._options, self._target = name, drawn, options, target
        self._inputs: dict[str, Any] = drawn.inputs(TOPOLOGY)
        self._trigger: Trigger | None = None
        self._expected: list[Tensor] | None = None
        self.ordinals = _ordinals_of(self._inputs.get("devices") if name in MODULE_CALLS else None)
        self.leaves = [*_grad_leaves(self._inputs)]
        self.net: nn.Module | None = [*self._inputs.get("modules", ()), None][0]
        self.net = self._inputs.get("module", self.net)
        is_replicated = name == "parallel_apply" or len(self.ordinals) > 1
        self.replicas = name in MODULE_CALLS and name != "replicate" and is_replicated

    def __repr__(self) -> str:
        options = f", {self._options}" if self._options else ""
        return f"{self._name}: {self._drawn}{options}"

    def repeat(self) -> "Call":
        """Return the same call with new arguments, without a trigger."""
        call = Call(self._name, self._drawn, self._options, self._target)
        call._expected = self._expected
        return call

    def add_trigger(self, trigger: Trigger, rng: random.Random, *, containers: bool) -> None:
        """Call ``trigger`` in modules and in backward; with ``containers``, also in lists."""
        self._trigger = trigger
        if trigger.place in BACKWARD_PLACES:
            _require_grads(self._inputs)
            self.leaves = [*_grad_leaves(self._inputs)]
        if containers and self._name in _BOXES:
            name, box = _BOXES[self._name]
            self._inputs[name] = box(self._inputs[name])
        faulty = Containers(trigger) if containers else None

        def change(module: nn.Module) -> nn.Module:
            site = rng.choice([module, *module.children()])
            return FaultyModule.around(module, trigger, faulty, site)

        for name, value in self._inputs.items():
            if name == "module":
                self.net = self._inputs[name] = change(value)
            elif name == "modules":
                self._inputs[name] = [*map(change, value)]
                self.net = self._inputs[name][0]
            elif name not in ("rows", "state"):
                self._inputs[name] = make_faulty(value, faulty)

    def compute(self) -> list[Tensor]:
        """Call the target. Return the results and the gradients of the leaves, on the CPU."""
        return self._compute(self._target, self._inputs, self._options)

    def expected(self) -> list[Tensor]:
        """Return the results and gradients of the oracle."""
        if self._expected is None:
            inputs = dict(self._inputs)
            if "module" in inputs:
                inputs["module"] = InAutocast(inputs["module"])
            if "modules" in inputs:
                inputs["modules"] = [*map(InAutocast, inputs["modules"])]
            self._expected = self._compute(ORACLE, inputs, {})
        return self._expected

    def drop_grads(self) -> None:
        """Free the gradients of ``leaves``."""
        for leaf in self.leaves:
            leaf.grad = None

    def _compute(
        self, target: Target, inputs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> list[Tensor]:
        self.drop_grads()
        run = _RUNS.get(self._name, _run_transfer)
        outputs = [*leaves_of(run(self._drawn, inputs, target, options))]
        if self._trigger is not None and self._name in TRANSFERS:
            outputs = [pass_through(each, self._trigger) for each in outputs]
        with_grad = [output for output in outputs if output.requires_grad]
        if with_grad and torch.is_grad_enabled():
            _run_backward(with_grad)
        grads = [torch.empty(0) if each.grad is None else each.grad for each in self.leaves]
        return [_plain(tensor) for tensor in [*outputs, *grads]]


def draw_call(target: Target, name: str, rng: random.Random) -> Call:
    """Draw a call of a public function."""
    drawn = draw({**MODULE_CALLS, **TRANSFERS}[name], rng)
    count = len(Call(name, drawn, {}, target).ordinals)
    drawn_options = {
        "in_turn": rng.random() < 0.3,
        "chunk_sizes": rng.choice([None, [1] * count]),
    }
    function: Any = None
    if name in ("DataParallel", "DataParallel.hold"):
        function = target.data_parallel.DataParallel
    elif name == "parallel_apply":
        function = target.parallel_apply.parallel_apply
    known = inspect.signature(function).parameters if function else ()
    options = {name: value for name, value in drawn_options.items() if name in known}
    return Call(name, drawn, options, target)


def _grad_leaves(inputs: Mapping[str, Any]) -> Iterator[Tensor]:
    found = (tensor for _, tensor in traverse.tensors(inputs, ""))
    return (tensor for tensor in found if tensor.requires_grad and tensor.is_leaf)


def _require_grads(inputs: Mapping[str, Any]) -> None:
    """Make floating-point and complex tensors on devices require grad, also those of modules."""
    for _, tensor in traverse.tensors(inputs, ""):
        is_number = tensor.is_floating_point() or tensor.is_complex()
        if is_number and tensor.is_leaf and tensor.device.type != "cpu":
            tensor.requires_grad_()


#: Name of a function -> its argument with containers, and a function that adds a list to it.
_BOXES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "scatter": ("inputs", lambda value: [value]),
    "scatter_kwargs": ("inputs", lambda values: tuple([value] for value in values)),
    "gather": ("outputs", lambda values: [[value] for value in values]),
}


def _ordinals_of(devices: Any) -> tuple[int, ...]:
    if devices is None:
        return TOPOLOGY.ordinals
    indices = (each if isinstance(each, int) else torch.device(each).index for each in devices)
    return tuple(indices)


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return tensor.cpu().resolve_conj().resolve_neg()


def _run_backward(outputs: list[Tensor]) -> None:
    # `torch.autograd.backward` removes the default device for a moment. After an interrupt in
    # this moment the default device would be lost. `_engine_run_backward` does not remove it.
    ones = (*map(torch.ones_like, outputs),)
    options = {"allow_unreachable": True, "accumulate_grad": True}
    _engine_run_backward(tuple(outputs), ones, False, False, (), **options)


# The methods `run` of the drawn calls of modules are not used: they set grad mode in a `with`
# block, and an interrupt while the block is entered or left may leave grad mode off.
def _run_transfer(drawn: Any, inputs: Any, target: Target, _: Mapping[str, Any]) -> Any:
    return drawn.run(target, inputs)


def _wrap(drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]) -> Any:
    # The constructor calls `module.to`, in which an interrupt may leave grad mode off.
    if "wrapper" not in inputs:
        inputs["wrapper"] = target.data_parallel.DataParallel(
            inputs["module"], inputs["devices"], inputs["output"], drawn.dim, **options
        )
    return inputs["wrapper"]


def _run_wrapper(drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]) -> Any:
    return _wrap(drawn, inputs, target, options)(*inputs["args"], **inputs["kwargs"])


@without_grad
def _run_hold(drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]) -> Any:
    wrapper = _wrap(drawn, inputs, target, options)
    with getattr(wrapper, "hold", nullcontext)():
        return [wrapper(*inputs["args"], **inputs["kwargs"]) for _ in range(2)]


def _run_function(drawn: Any, inputs: Any, target: Target, _: Mapping[str, Any]) -> Any:
    return target.data_parallel.data_parallel(
        inputs["module"],
        inputs["args"],
        inputs["devices"],
        inputs["output"],
        drawn.dim,
        inputs["kwargs"] or None,
    )


def _run_parallel_apply(
    drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]
) -> Any:
    return target.parallel_apply.parallel_apply(
        inputs["modules"], inputs["inputs"], None, inputs["devices"], **options
    )


def _run_replicate(drawn: Any, inputs: Any, target: Target, _: Mapping[str, Any]) -> Any:
    # With `detach`, the copies are new leaves, whose gradients are not computed.
    run = without_grad(_run_replicas) if drawn.detach else _run_replicas
    return run(drawn, inputs, target)


def _run_replicas(drawn: Any, inputs: Any, target: Target) -> Any:
    replicas = target.replicate.replicate(inputs["module"], inputs["devices"], drawn.detach)
    return [replica(x) for replica, x in zip(replicas, inputs["rows"], strict=True)]


#: Name of a public function that runs modules -> a function that calls it.
_RUNS = {
    "DataParallel": _run_wrapper,
    "data_parallel": _run_function,
    "DataParallel.hold": _run_hold,
    "parallel_apply": _run_parallel_apply,
    "replicate": _run_replicate,
}
