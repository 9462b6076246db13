"""A call of an operator as Python code, without the values of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.programs.expressions import Expressions, NoExpressionError

#: The names of devices and tensors in the code.
_DEVICES = ("device", "other_device", "third_device", "fourth_device")
_TENSORS = "abcdefghijklmnopqrstuvwxyz"
_COMPARES = """\
results = []
for {names} in {places}:
    {lines}
    results.append([each for each in ({members}) if each is not None])
torch.testing.assert_close(*results, check_device=False, equal_nan=True)
"""


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator. Its code has names in place of the devices.

    Args:
        operator: The operator, such as ``aten.add.Tensor``.
        tensors: The expression of each tensor.
        call: The expression of the call.
        devices: The devices, such as ``cuda:0``.
        current: The ordinal of the current device.
        comparable: Whether the result is equal in each call, and known before the call.
    """

    operator: str
    tensors: tuple[str, ...]
    call: str
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
        writer, name = _Writer(), str(function)
        arguments = [writer.of(each) for each in args]
        arguments += [f"{key}={writer.of(each)}" for key, each in kwargs.items()]
        if not writer.devices:
            return None
        is_random = torch.Tag.nondeterministic_seeded in function.tags
        comparable = not is_random and "empty" not in name and "resize" not in name
        call = f"torch.ops.{name}({', '.join(arguments)})"
        return cls(name, tuple(writer.tensors), call, tuple(writer.devices), current, comparable)

    @property
    def refused(self) -> bool:
        """Whether PyTorch refuses the call on all back ends: only copies accept two devices."""
        return len(self.devices) > 1 and "copy" not in self.operator

    def raising_program(self, modules: tuple[str, ...], *, strict: bool, on_cpu: bool) -> str:
        """Return a program that makes the call.

        Args:
            modules: The modules to import.
            strict: Whether warnings are errors.
            on_cpu: Whether the CPU replaces all devices.
        """
        places = _on_cpu(self.devices) if on_cpu else self.devices
        lines = self._first_lines("warnings", *modules) if strict else self._first_lines(*modules)
        lines += ['warnings.simplefilter("error")'] if strict else []
        lines += [f'{name} = "{each}"' for name, each in zip(_DEVICES, places, strict=False)]
        return "\n".join([*lines, *self._tensor_lines(), self.call, ""])

    def comparing_program(self, modules: tuple[str, ...]) -> str:
        """Return a program that fails if the result differs from that on the CPU."""
        places = [self.devices, _on_cpu(self.devices)]
        body = _COMPARES.format(
            names=", ".join(_DEVICES[: len(self.devices)]),
            places=", ".join(f'"{each[0]}"' if len(each) == 1 else f"{each}" for each in places),
            lines="\n    ".join([*self._tensor_lines(), f"result = {self.call}"]),
            members=", ".join(["result", *_TENSORS[: len(self.tensors)]]),
        )
        return "\n".join([*self._first_lines(*modules), body])

    def _first_lines(self, *modules: str) -> list[str]:
        """Return the lines that import modules and select the current device."""
        imports = [f"import {each}" for each in sorted({"torch", *modules})]
        device = [f"torch.accelerator.set_device_index({self.current})"] if self.current else []
        return [*imports, "", *device]

    def _tensor_lines(self) -> list[str]:
        pairs = zip(_TENSORS, self.tensors, strict=False)
        return [f"{name} = {expression}" for name, expression in pairs]


def _on_cpu(devices: tuple[str, ...]) -> tuple[str, ...]:
    return ("cpu",) * len(devices)


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
        return super().of(value)

    def _device(self, device: torch.device) -> str:
        name = str(device)
        if device.type in ("cpu", "meta"):
            return f'"{name}"'
        if name not in self.devices:
            self.devices.append(name)
        if device.index is None or len(self.devices) > len(_DEVICES):
            raise NoExpressionError(name)
        return _DEVICES[self.devices.index(name)]

    def _tensor(self, tensor: Tensor) -> str:
        if id(tensor) not in self._known:
            expression = self._new_tensor(tensor)
            self._known[id(tensor)] = _TENSORS[len(self.tensors)]
            self.tensors.append(expression)
        return self._known[id(tensor)]

    def _new_tensor(self, tensor: Tensor) -> str:
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            raise NoExpressionError("a sparse, conjugate or negative tensor")
        if len(self.tensors) >= len(_TENSORS):
            raise NoExpressionError("many tensors")
        device = "" if tensor.device.type == "cpu" else f".to({self._device(tensor.device)})"
        dtype = "" if tensor.dtype is torch.int64 else f".to({tensor.dtype})"
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        if tensor.is_contiguous():
            return f"torch.arange({tensor.numel()}).reshape({shape}){dtype}{device}"
        extents = zip(shape, strides, strict=True)
        size = 1 + sum((extent - 1) * stride for extent, stride in extents)
        return f"torch.arange({size}){dtype}{device}.as_strided({shape}, {strides})"
