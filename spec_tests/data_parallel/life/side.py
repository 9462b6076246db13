"""One of the two wrappers of a life, and the results that its caller holds."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.checks.nested_values import tensors
from spec_tests.checks.outcome import cotangent
from spec_tests.checks.replica_laws import first_names
from spec_tests.checks.snapshot import snapshot
from spec_tests.data_parallel.life import log
from spec_tests.data_parallel.life.program import traceback_end
from spec_tests.data_parallel.life.root import take_called
from spec_tests.failure import error_line


class ErrorClass(str):
    """The name of the class of an error. Its ``repr`` shows the text of the error, too."""

    line = ""

    def __repr__(self) -> str:
        return self.line


@dataclass
class Side:
    """A wrapper, and the inputs and outputs whose backward has not run.

    Args:
        wrap: Returns a wrapper of a module.
        function: Returns the outputs for a module, positional and keyword arguments.
        wrapper: The wrapper.
        kept: Keyword tensors of all calls, by number of rows, dtype and device.
        error: The end of the traceback of the last change, or an empty text.
    """

    wrap: Callable[[nn.Module], Any]
    function: Callable[[nn.Module, Any, Any], Any]
    wrapper: Any
    pending: list[tuple[Tensor, Any]] = field(default_factory=list)
    watched: list[weakref.ref[Any]] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)
    kept: dict[Any, Tensor] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    error: str = ""

    def __post_init__(self) -> None:
        self._names = set(vars(self.wrapper))

    def run(self, change: Callable[["Side"], Any]) -> Any:
        """Return the snapshot of ``change(self)``, or the class of its error."""
        self.error = ""
        try:
            result = snapshot(change(self), {}, strides=False)
        except Exception as error:
            result = ErrorClass(type(error).__name__)
            result.line = error_line(result, str(error))
            self.error = f"\n{traceback_end(error)}"
        self.calls = log.take()
        return result

    def forward(self, x: Tensor, keywords: dict[str, Any], *, functional: bool) -> Any:
        """Return the outputs for the batch ``x``, and keep them for a backward."""
        module = self.wrapper.module
        self.watched.append(weakref.ref(x))
        try:
            outputs = (
                self.function(module, (x,), keywords)
                if functional
                else self.wrapper(x, **keywords)
            )
        finally:
            self.watched += [each for each in take_called() if each() is not module]
        self.watched += [weakref.ref(each) for _, each in tensors(outputs, "")]
        self.pending.append((x, outputs))
        return outputs

    def backward(self, first: int, last: int | None, *, retain: bool) -> Any:
        """Run backward of the results ``first:last``; return the gradients of their inputs."""
        results = self.pending[first:last]
        outputs = [each for _, value in results for _, each in tensors(value, "")]
        outputs = [each for each in outputs if each.requires_grad]
        if not retain:
            del self.pending[first:last]
        if outputs:
            torch.autograd.backward(outputs, list(map(cotangent, outputs)), retain)
        return [x.grad for x, _ in results]

    def results(self) -> list[Any]:
        """Return the outputs of all forwards whose results the caller holds."""
        return [outputs for _, outputs in self.pending]

    def drop(self) -> None:
        """Drop the results, and change the keyword tensors in place, which no graph needs now."""
        self.pending.clear()
        for each in self.kept.values():
            each.add_(0.25).remainder_(1)

    @property
    def modules(self) -> list[nn.Module]:
        """The wrapper and the modules in it."""
        return list(self.wrapper.modules())

    def alive(self) -> Sequence[str]:
        """Return the classes of replicas, inputs and outputs that are alive."""
        return [type(each()).__name__ for each in self.watched if each() is not None]

    def state(self, *, zero_gradients: bool) -> Any:
        """Return everything about the wrapper and its module that a caller can see.

        Delete the list of calls of the module.

        Args:
            zero_gradients: Whether a missing gradient is the same as zeros.
        """
        module = self.wrapper.module
        parameters = dict(module.named_parameters(remove_duplicate=False))
        buffers = dict(module.named_buffers(remove_duplicate=False))
        gradients = {name: each.grad for name, each in parameters.items()}
        if zero_gradients:
            gradients = {
                name: torch.zeros_like(parameters[name]) if each is None else each
                for name, each in gradients.items()
            }
        modules = dict(self.wrapper.named_modules(remove_duplicate=False))
        seen = sorted(module.seen)
        module.seen.clear()
        return {
            "hooks": self.calls,
            "parameters": parameters,
            "buffers": buffers,
            "gradients": gradients,
            "same tensors": first_names(parameters | buffers),
            "keys of a parent's state": list(nn.ModuleList([self.wrapper]).state_dict()),
            "modes": {name: each.training for name, each in modules.items()},
            "attributes": (module.factor, module.calls, str(seen)),
            "new attributes of the wrapper": sorted(set(vars(self.wrapper)) - self._names),
        }
