"""Calls of the public functions, their results, and comparisons of results."""

import gc
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from spec_tests import simulator
from spec_tests.harness import traverse
from spec_tests.harness.environment.topology import SIMULATED_DEVICES

from .cases import CASES

__all__ = ["Call", "Result", "are_equal", "describe", "prepare"]

#: The largest relative and absolute difference of two numbers that count as equal: with an
#: interrupt or a missing thread, gradients may be added in another order, also in float16.
_TOLERANCE = 1e-2
#: The largest length, in characters, of an error's text in a finding.
_TEXT_LENGTH = 300
#: The dtype and the numbers of each returned tensor and of each gradient, as JSON has them.
Result = list[tuple[str, Any]]


def prepare() -> None:
    """Register the devices. Use none of them, so that this process can fork."""
    torch.set_num_threads(1)
    simulator.enable(SIMULATED_DEVICES)
    # The first backward needs this module.
    importlib.import_module("torch.fx.experimental.symbolic_shapes")
    # A garbage collection in a forked process then skips all objects that exist now.
    gc.collect()
    gc.freeze()


class Call:
    """A public function. All calls use the same wrapper, and new arguments.

    Args:
        name: A name of ``CASES``.
    """

    def __init__(self, name: str) -> None:
        self.case = CASES[name]
        self._function = self.case.find()

    def create_arguments(self) -> dict[str, Any]:
        """Return new valid arguments."""
        return self.case.arguments()

    def modules(self, arguments: Mapping[str, Any]) -> list[nn.Module]:
        """Return the modules among the arguments, and the wrapper, with their submodules."""
        named = [arguments.get(name) for name in ("module", "network")]
        found = [self._function, *named, *arguments.get("modules", ())]
        roots = [each for each in found if isinstance(each, nn.Module)]
        return [module for root in roots for module in root.modules()]

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Make the call. Return its results."""
        return self._function(**arguments)

    def compute(self, arguments: Mapping[str, Any]) -> Result:
        """Make the call. Return its results, and the gradients of the leaves."""
        outputs = _tensors_in(self.run(arguments))
        parameters = [each for module in self.modules(arguments) for each in module.parameters()]
        leaves = [*parameters, *(each for each in _tensors_in(arguments) if each.requires_grad)]
        try:
            with_grad = [output for output in outputs if output.requires_grad]
            if with_grad and torch.is_grad_enabled():
                _run_backward(with_grad)
            grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
            return [(str(each.dtype), _to_list(each)) for each in [*outputs, *grads]]
        finally:
            for leaf in leaves:
                leaf.grad = None


def _tensors_in(value: object) -> list[Tensor]:
    return [tensor for _, tensor in traverse.tensors(value, "")]


def _to_list(tensor: Tensor) -> Any:
    return tensor.detach().cpu().tolist()


def _run_backward(outputs: Sequence[Tensor]) -> None:
    # `torch.autograd.backward` removes the default device for a moment. After an interrupt in
    # this moment the default device would be lost. `_engine_run_backward` does not remove it.
    ones = (*map(torch.ones_like, outputs),)
    options = {"allow_unreachable": True, "accumulate_grad": True}
    _engine_run_backward(tuple(outputs), ones, False, False, (), **options)


def are_equal(found: Result, expected: Result) -> bool:
    """Return whether two results have the same dtypes and, but for rounding, numbers."""
    return len(found) == len(expected) and all(map(_is_close, found, expected))


def _is_close(found: tuple[str, Any], expected: tuple[str, Any]) -> bool:
    left, right = (torch.tensor(each[1], device="cpu") for each in (found, expected))
    if found[0] != expected[0] or left.shape != right.shape:
        return False
    return torch.allclose(left, right, rtol=_TOLERANCE, atol=_TOLERANCE)


def describe(error: BaseException) -> str:
    """Return the class of an exception and the end of its text."""
    return f"{type(error).__name__}: {str(error)[-_TEXT_LENGTH:]}"
