"""The outcome of a call: result or error, warnings, gradients, and the inputs afterwards."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from spec_tests.checks.nested_values import tensors
from spec_tests.checks.snapshot import snapshot
from spec_tests.failure import line_in_package
from spec_tests.machine import process_state
from spec_tests.machine.devices import WARNINGS_OF_BUILD, Topology
from spec_tests.machine.target import Target

#: Matches warnings that are ignored.
_OF_BUILD = re.compile("|".join(WARNINGS_OF_BUILD))
#: Matches addresses, and absolute paths of files.
_VARIABLE = re.compile(r"0x[0-9a-f]+|(?<![\w.])/(?:[\w.+-]+/)+[\w.+-]*")
#: Matches a missing space in an error of ``torch._C._gather`` before PyTorch 2.15.
_MISSING_SPACE = re.compile(r"(?<=tensor at index )(\d+)has ")


class Call(Protocol):
    """A call of a function of the target. Its ``repr`` shows the call as Python code.

    A call may have the attribute ``current``: the number in the topology of the device that is
    current during the call, or None.
    """

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return new arguments. Every call of this method returns equal values."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Make the call on ``target`` with ``inputs`` and return the result."""


@dataclass(frozen=True)
class Raised:
    """The class name of an exception, and its text without the parts that `normalise` removes.

    ``place`` is the line of the target that raised it, if it is known.
    """

    class_name: str
    text: str
    place: str = field(default="", compare=False)


@dataclass(frozen=True)
class Outcome:
    """The facts about one run of a call that the suite compares with another run.

    Args:
        result: The snapshot of the result, or the `Raised` of the call.
        warnings: The classes and texts of the warnings.
        inputs: The snapshot of the arguments after the call.
        gradients: The snapshot of the arguments' gradients, or the `Raised` of the backward pass;
            None if no gradients are computed.
        changes: The parts of the process state that the call changed, such as random states. For
            each name: a text.
    """

    result: Any
    warnings: tuple[str, ...]
    inputs: Any
    gradients: Any
    changes: dict[str, str]


def observe(call: Call, target: Target, topology: Topology, *, gradients: bool = True) -> Outcome:
    """Make ``call`` on ``target`` with new inputs and return the outcome."""
    inputs = call.inputs(topology)
    seed_generators()
    with (
        torch.accelerator.device_index(topology.device(getattr(call, "current", None)).index),
        process_state.kept_devices(topology),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        before = _read_process_state(topology)
        try:
            value = call.run(target, inputs)
            result = snapshot(value, inputs)
        except Exception as error:
            value, result = None, raised_by(error, target.name)
        changes = process_state.changes(before, _read_process_state(topology))
        found = _input_gradients(value, inputs) if gradients else None
    after = snapshot(inputs, inputs)
    return Outcome(result, _warning_texts(caught), after, found, changes)


def _read_process_state(topology: Topology) -> dict[str, Any]:
    return process_state.read(topology) | process_state.read_random_states(topology)


def seed_generators() -> None:
    """Seed all generators with 0. ``torch.manual_seed`` would be slow: it formats a traceback."""
    torch.default_generator.manual_seed(0)
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None:
        device_module = torch.get_device_module(accelerator)
        seed = getattr(device_module, "manual_seed_all", None) or device_module.manual_seed
        seed(0)


def raised_by(error: BaseException, package: str = "") -> Raised:
    """Return the class name, the normalised text and the place in ``package`` of an exception."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    place = line_in_package(error, package) if package else ""
    return Raised(f"{module}{kind.__qualname__}", normalise(str(error)), place)


def normalise(text: str) -> str:
    """Return an error text without the parts that differ between runs.

    The removed parts are traceback frames, C++ backtraces, addresses, and absolute paths of files
    (the error of a compiler names a temporary file). A space that PyTorch before 2.15 lacks is
    added.
    """
    text = text.split("\nException raised from", 1)[0]
    # The lines of traceback frames are indented; the text of the exception is not.
    lines = [line for line in text.splitlines() if not line.startswith("  ")]
    return _MISSING_SPACE.sub(r"\1 has ", _VARIABLE.sub("...", "\n".join(lines)))


def _warning_texts(caught: list[warnings.WarningMessage]) -> tuple[str, ...]:
    texts = (f"{each.category.__name__}: {each.message}" for each in caught)
    return tuple(text for text in texts if not _OF_BUILD.search(text))


def _input_gradients(result: object, inputs: Mapping[str, Any]) -> Any:
    given = (pair for name, value in inputs.items() for pair in tensors(value, name))
    leaves = {path: tensor for path, tensor in given if tensor.requires_grad}
    outputs = [tensor for _, tensor in tensors(result, "result") if tensor.requires_grad]
    if not leaves or not outputs:
        return None
    # The outputs get different gradients, so that a test notices swapped outputs.
    cotangents = [cotangent(output) * (1 + index % 3) for index, output in enumerate(outputs)]
    try:
        found = torch.autograd.grad(outputs, list(leaves.values()), cotangents, allow_unused=True)
    except RuntimeError as error:
        return raised_by(error)
    return snapshot(dict(zip(leaves, found, strict=True)), {}, strides=False)


def cotangent(output: Tensor) -> Tensor:
    """Return a gradient for ``output``: small whole numbers, because their sums are exact."""
    count = torch.arange(output.numel(), device="cpu").remainder(5).add(1)
    return count.reshape(output.shape).to(output.dtype).to(output.device)
