"""The public functions with valid arguments, each of which can be replaced by a wrong value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from impl_tests.stress.sharing import create_tensor
from spec_tests.harness.environment.target import Target

__all__ = ["CASES", "NAMES", "Case", "call_replicate", "net", "pair", "x"]


@dataclass(frozen=True)
class Case:
    """A public function with valid arguments.

    Args:
        call: A function that calls the public function of a target with keyword arguments. It also
            runs modules that the public function returns.
        arguments: A function that returns new valid arguments.
        names: For arguments that ``NAMES`` does not fit: a regular expression.
    """

    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    names: Mapping[str, str] = field(default_factory=dict)


def net() -> nn.Module:
    """Return a linear module on sim:0."""
    linear = nn.Linear(3, 2).double()
    for parameter in linear.parameters():
        parameter.data = create_tensor(*parameter.shape)
    return linear.to("sim:0")


def x(ordinal: int = 0, rows: int = 4) -> Tensor:
    """Return an input of :func:`net`."""
    return create_tensor(rows, 3, device=f"sim:{ordinal}")


def _construct(target: Target, **arguments: Any) -> Any:
    return target.data_parallel.DataParallel(**arguments)(x())


def _construct_arguments() -> dict[str, Any]:
    return {"module": net(), "device_ids": [0, 1], "output_device": 0, "dim": 0}


def call_replicate(target: Target, **arguments: Any) -> Any:
    """Call ``replicate``. Return the parameters of the replicas."""
    replicas = target.replicate.replicate(**arguments)
    return [list(replica._former_parameters.values()) for replica in replicas]


def _of(part: str, name: str) -> Callable[..., Any]:
    """Return a function that calls ``target.part.name`` with keyword arguments."""
    return lambda target, **arguments: getattr(getattr(target, part), name)(**arguments)


def _apply(name: str) -> Callable[..., Any]:
    """Return a function that passes the values of its keyword arguments to ``Function.apply``."""

    def call(target: Target, **arguments: Any) -> Any:
        function = getattr(target.functions, name)
        return function.apply(*arguments.values())

    return call


def pair() -> list[Tensor]:
    """Return an input on each of two devices."""
    return [x(0), x(1)]


#: Name of an argument -> a regular expression for its names in errors.
NAMES = {
    name: rf"{name}|device|devices"
    for name in ("devices", "target_gpus", "target_device", "destination")
} | {
    # DataParallel passes its devices to scatter and gather, and its module to replicate.
    "device_ids": "device_ids|device|devices|target_gpus",
    "output_device": "output_device|device|target_device",
    "module": "module|network",
    # DataParallel calls its inputs ``args[0]`` and ``kwargs['name']``, and passes them to scatter.
    **dict.fromkeys(
        ["input", "inputs", "kwargs", "module_kwargs"],
        "inputs?|args|kwargs|module_kwargs|tensors?|view",
    ),
    "outputs": "outputs?|tensors?",
    "out": "out|output|devices",  # Without `out`, devices are missing.
    "tensor": "tensors?",
    "tensors": "tensors?",
    "chunk_sizes": "chunk.sizes?|split_sizes",
    "dim": "dim|Dimension",
    # Of Functions.
    "first": "inputs?|grads|tensors?",
    "second": "inputs?|grads|tensors?",
}

#: Name of a public function -> its case.
CASES: dict[str, Case] = {
    "DataParallel": Case(_construct, _construct_arguments),
    "DataParallel.forward": Case(
        lambda target, **inputs: target.data_parallel.DataParallel(net(), [0, 1])(**inputs),
        lambda: {"input": x()},
    ),
    "data_parallel": Case(
        _of("data_parallel", "data_parallel"),
        lambda: {
            "module": net(),
            "inputs": (),
            "device_ids": [0, 1],
            "output_device": 0,
            "dim": 0,
            "module_kwargs": {"input": x()},
        },
    ),
    "parallel_apply": Case(
        _of("parallel_apply", "parallel_apply"),
        lambda: {
            "modules": [nn.Identity(), nn.Identity()],
            "inputs": pair(),
            "kwargs_tup": ({}, {}),
            "devices": [0, 1],
        },
    ),
    "replicate": Case(
        call_replicate, lambda: {"network": net(), "devices": [0, 1], "detach": False}
    ),
    "scatter": Case(
        _of("scatter_gather", "scatter"),
        lambda: {"inputs": (x(),), "target_gpus": [0, 1], "dim": 0},
    ),
    "scatter_kwargs": Case(
        _of("scatter_gather", "scatter_kwargs"),
        lambda: {"inputs": (x(),), "kwargs": {"x": x()}, "target_gpus": [0, 1], "dim": 0},
    ),
    "gather": Case(
        _of("scatter_gather", "gather"),
        lambda: {"outputs": pair(), "target_device": 0, "dim": 0},
    ),
    "comm.broadcast": Case(
        _of("comm", "broadcast"),
        lambda: {"tensor": x(), "devices": [0, 1], "out": None},
    ),
    "comm.broadcast into out": Case(
        _of("comm", "broadcast"), lambda: {"tensor": x(), "out": pair()}
    ),
    "comm.broadcast_coalesced": Case(
        _of("comm", "broadcast_coalesced"),
        lambda: {"tensors": [x(), x()], "devices": [0, 1], "buffer_size": 100},
    ),
    "comm.reduce_add": Case(
        _of("comm", "reduce_add"), lambda: {"inputs": pair(), "destination": 0}
    ),
    "comm.reduce_add_coalesced": Case(
        _of("comm", "reduce_add_coalesced"),
        lambda: {"inputs": [[x(0)], [x(1)]], "destination": 0, "buffer_size": 100},
    ),
    "comm.scatter": Case(
        _of("comm", "scatter"),
        lambda: {
            "tensor": x(),
            "devices": [0, 1],
            "chunk_sizes": [1, 3],
            "dim": 0,
            "streams": None,
        },
    ),
    "comm.scatter into out": Case(
        _of("comm", "scatter"),
        lambda: {"tensor": x(), "dim": 0, "out": [x(0, 2), x(1, 2)]},
    ),
    "comm.gather": Case(
        _of("comm", "gather"),
        lambda: {"tensors": pair(), "dim": 0, "destination": 0},
    ),
    "comm.gather into out": Case(
        _of("comm", "gather"), lambda: {"tensors": pair(), "dim": 0, "out": x(0, 8)}
    ),
    "functions.Broadcast": Case(
        _apply("Broadcast"),
        lambda: {"target_gpus": [0, 1], "input": x()},
    ),
    "functions.ReduceAddCoalesced": Case(
        _apply("ReduceAddCoalesced"),
        lambda: {"destination": 0, "num_inputs": 1, "first": x(0), "second": x(1)},
    ),
    "functions.Scatter": Case(
        _apply("Scatter"),
        lambda: {"target_gpus": [0, 1], "chunk_sizes": [1, 3], "dim": 0, "input": x()},
    ),
    "functions.Gather": Case(
        _apply("Gather"),
        lambda: {"target_device": 0, "dim": 0, "first": x(0), "second": x(1)},
    ),
}
