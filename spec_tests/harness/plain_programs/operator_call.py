"""A call of an operator as Python code, without the values of its tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.expressions import Expressions, NoExpressionError

__all__ = ["OperatorCall"]

_RAISES = """\
{imports}
{strict}{current}{tensors}
{call}
"""
_COMPARES = """\
{imports}
{current}

def call({parameters}):
    {body}
    return {returned}


expected = call({cpus})
actual = call({devices})
torch.testing.assert_close(actual, expected, check_device=False, equal_nan=True)
"""


@dataclasses.dataclass(frozen=True)
class OperatorCall:
    """A call of an operator. ``{0}`` in an expression stands for the first of ``devices``.

    Args:
        operator: The operator, such as ``aten.add.Tensor``.
        arguments: The expressions of the arguments.
        tensors: The expressions of the tensors, which are named ``a``, ``b``, ...
        devices: The devices, such as ``cuda:0``.
        current: The ordinal of the current device.
        comparable: Whether the result is equal in each call, and known before the call.
    """

    operator: str
    arguments: tuple[str, ...]
    tensors: tuple[str, ...]
    devices: tuple[str, ...]
    current: int
    comparable: bool

    @classmethod
    def of(
        cls, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], current: int
    ) -> OperatorCall | None:
        """Return the call; None if no argument is on an accelerator.

        Args:
            function: The operator.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            current: The ordinal of the current device.

        Raises:
            NoExpressionError: No expression makes an argument, such as a sparse tensor.
        """
        writer = _Writer()
        arguments = [writer.of(each) for each in args]
        arguments += [f"{name}={writer.of(each)}" for name, each in kwargs.items()]
        if not writer.devices:
            return None
        is_random = torch.Tag.nondeterministic_seeded in function.tags
        comparable = (
            not is_random and "empty" not in str(function) and "resize" not in str(function)
        )
        tensors = tuple(writer.tensors)
        return cls(
            str(function), tuple(arguments), tensors, tuple(writer.devices), current, comparable
        )

    @property
    def refused(self) -> bool:
        """Whether PyTorch refuses the call on all back ends: only copies accept two devices."""
        return len(self.devices) > 1 and "copy" not in self.operator

    def on_cpu(self) -> OperatorCall:
        """Return the call on the CPU."""
        return dataclasses.replace(self, devices=("cpu",) * len(self.devices), current=0)

    def raising_program(self, modules: tuple[str, ...], *, strict: bool) -> str:
        """Return a program that makes the call. ``strict``: warnings are errors."""
        devices = [f'"{each}"' for each in self.devices]
        lines = [line.format(*devices) for line in self._tensor_lines()]
        return _RAISES.format(
            imports=_imports("warnings", *modules) if strict else _imports(*modules),
            strict='\nwarnings.simplefilter("error")' if strict else "",
            current=self._current_line(),
            tensors="".join(f"\n{line}" for line in lines),
            call=self._call().format(*devices),
        )

    def comparing_program(self, modules: tuple[str, ...]) -> str:
        """Return a program that fails if the result differs from that on the CPU."""
        names = ["device", "other_device", "third_device", "fourth_device"][: len(self.devices)]
        lines = [*self._tensor_lines(), f"result = {self._call()}"]
        returned = ", ".join(["result", *_names(len(self.tensors))])
        return _COMPARES.format(
            imports=_imports(*modules),
            current=self._current_line(),
            parameters=", ".join(names),
            body="\n    ".join(lines).format(*names),
            returned=f"[each for each in ({returned}) if each is not None]",
            cpus=", ".join(['"cpu"'] * len(names)),
            devices=", ".join(f'"{each}"' for each in self.devices),
        )

    def _tensor_lines(self) -> list[str]:
        pairs = zip(_names(len(self.tensors)), self.tensors, strict=True)
        return [f"{name} = {expression}" for name, expression in pairs]

    def _call(self) -> str:
        return f"torch.ops.{self.operator}({', '.join(self.arguments)})"

    def _current_line(self) -> str:
        return f"\ntorch.accelerator.set_device_index({self.current})" if self.current else ""


class _Writer(Expressions):
    """Writes expressions, and collects the tensors and the devices in them."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[str] = []
        self.devices: list[str] = []
        self._known: dict[int, str] = {}

    def of(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, torch.device):
            return self._device(value)
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.of, value))}]"
        # Braces stand for devices.
        return super().of(value).replace("{", "{{").replace("}", "}}")

    def _device(self, device: torch.device) -> str:
        if device.type in ("cpu", "meta"):
            return f'"{device}"'
        if device.index is None:
            raise NoExpressionError(device)
        if str(device) not in self.devices:
            self.devices.append(str(device))
        return f"{{{self.devices.index(str(device))}}}"

    def _tensor(self, tensor: Tensor) -> str:
        if id(tensor) not in self._known:
            expression = self._new_tensor(tensor)
            self.tensors.append(expression)
            self._known[id(tensor)] = _names(len(self.tensors))[-1]
        return self._known[id(tensor)]

    def _new_tensor(self, tensor: Tensor) -> str:
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            raise NoExpressionError("a sparse, conjugate or negative tensor")
        if len(self.tensors) >= len(_LETTERS):
            raise NoExpressionError("many tensors")
        device = "" if tensor.device.type == "cpu" else f".to({self._device(tensor.device)})"
        dtype = "" if tensor.dtype is torch.int64 else f".to({tensor.dtype})"
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        if tensor.is_contiguous():
            return f"torch.arange({tensor.numel()}).reshape({shape}){dtype}{device}"
        extents = zip(shape, strides, strict=True)
        size = 1 + sum((extent - 1) * stride for extent, stride in extents)
        return f"torch.arange({size}){dtype}{device}.as_strided({shape}, {strides})"


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _names(count: int) -> list[str]:
    return [*_LETTERS[:count]]


def _imports(*modules: str) -> str:
    return "\n".join(f"import {each}" for each in sorted({"torch", *modules}))
