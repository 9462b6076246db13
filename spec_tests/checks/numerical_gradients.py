"""Compare first and second derivatives with numerical ones, which the CPU computes.

``gradcheck`` needs operators in double precision, such as ``abs`` and ``isclose``, that a back end
may lack. Here it gets copies of the inputs and outputs on the CPU.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call

from spec_tests.checks.nested_values import tensors
from spec_tests.checks.outcome import cotangent
from spec_tests.failure import Fact, Failure, noted_error


def check_gradients(function: Callable[..., Any], inputs: Sequence[Tensor]) -> None:
    """Fail unless ``gradcheck`` accepts the derivatives of all outputs of ``function``."""
    moved, copies = _on_cpu(function, inputs), _copies(inputs)
    _require_grad(moved(*copies))
    with _differs_in("gradient"):
        gradcheck(moved, copies)


def check_second_gradients(function: Callable[..., Any], inputs: Sequence[Tensor]) -> None:
    """Fail unless ``gradgradcheck`` accepts the second derivatives of all outputs."""
    moved, copies = _on_cpu(function, inputs), _copies(inputs)
    outputs = moved(*copies)
    _require_grad(outputs)
    gradients = [cotangent(output).requires_grad_() for output in outputs]
    with _differs_in("second gradient"):
        gradgradcheck(moved, copies, gradients)


def require_graphs(gradients: Sequence[Tensor], call: object) -> None:
    """Fail unless all gradients have a graph: ``gradgradcheck`` skips the others."""
    missing = [index for index, each in enumerate(gradients) if not each.requires_grad]
    if missing:
        text = f"the gradients of the inputs {missing} have no graph, and so no second gradient"
        fact = Fact("second gradient", "missing")
        raise noted_error(Failure("differs", (fact,), text, call=repr(call)))


def _require_grad(outputs: Sequence[Tensor]) -> None:
    if not all(output.requires_grad for output in outputs):
        fact = Fact("output", "requires_grad")
        raise noted_error(Failure("differs", (fact,), "an output requires no gradient"))


@contextmanager
def _differs_in(place: str) -> Iterator[None]:
    try:
        yield
    except GradcheckError as error:
        raise noted_error(Failure("differs", (Fact(place, "values"),), str(error))) from None


def call_with_tensors(
    function: Callable[[], Any], module: nn.Module, replacements: Mapping[str, Tensor]
) -> Any:
    """Return ``function()``, which calls ``module``, while other tensors replace its parameters.

    Args:
        function: The function.
        module: The module.
        replacements: The tensors by the names of parameters and buffers.
    """
    named = {f"module.{name}": tensor for name, tensor in replacements.items()}
    return functional_call(_Caller(function, module), named, ())


class _Caller(nn.Module):
    """A module that calls a function. ``functional_call`` replaces the tensors of ``module``."""

    def __init__(self, function: Callable[[], Any], module: nn.Module) -> None:
        super().__init__()
        self.function, self.module = function, module

    def forward(self) -> Any:
        return self.function()


def _copies(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of ``inputs`` on the CPU, as leaves."""
    return [each.detach().cpu().clone().requires_grad_(each.requires_grad) for each in inputs]


def _on_cpu(
    function: Callable[..., Any], inputs: Sequence[Tensor]
) -> Callable[..., tuple[Tensor, ...]]:
    """Return ``function`` with arguments and results on the CPU; it gets ``inputs``' devices."""
    devices = [each.device for each in inputs]

    def call(*leaves: Tensor) -> tuple[Tensor, ...]:
        moved = [leaf.to(device) for leaf, device in zip(leaves, devices, strict=True)]
        return tuple(output.cpu() for _, output in tensors(function(*moved), "output"))

    return call
