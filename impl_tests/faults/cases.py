"""The public functions with valid arguments, each of which can be replaced by a wrong value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from impl_tests.stress.sharing import create_tensor

from .target import Target

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A public function with valid arguments.

    Args:
        call: A function that calls the public function of a target with keyword arguments. It also
            runs modules that the public function returns.
        arguments: A function that returns new valid arguments.
    """

    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]


def _net() -> nn.Module:
    net = nn.Linear(3, 2).double()
    for parameter in net.parameters():
        parameter.data = create_tensor(*parameter.shape)
    return net.to("sim:0")


def _x(ordinal: int = 0, rows: int = 4) -> Tensor:
    return create_tensor(rows, 3, device=f"sim:{ordinal}")


def _construct(target: Target, **arguments: Any) -> Any:
    return target.data_parallel.DataParallel(**arguments)(_x())


def _construct_arguments() -> dict[str, Any]:
    return {"module": _net(), "device_ids": [0, 1], "output_device": 0, "dim": 0}


def _replicate(target: Target, *, devices: Any, network: Any, detach: Any) -> Any:
    replicas = target.replicate.replicate(network, devices, detach)
    return [replica(_x(index)) for index, replica in enumerate(replicas)]


def _of(part: str, name: str) -> Callable[..., Any]:
    """Return a function that calls ``target.part.name`` with keyword arguments."""
    return lambda target, **arguments: getattr(getattr(target, part), name)(**arguments)


def _apply(name: str) -> Callable[..., Any]:
    """Return a function that passes the values of its keyword arguments to ``Function.apply``."""

    def call(target: Target, **arguments: Any) -> Any:
        function = getattr(target.functions, name)
        return function.apply(*arguments.values())

    return call


def _pair() -> list[Tensor]:
    return [_x(0), _x(1)]


#: Name of a public function -> its case.
CASES: dict[str, Case] = {
    "DataParallel": Case(_construct, _construct_arguments),
    "DataParallel.forward": Case(
        lambda target, **inputs: target.data_parallel.DataParallel(_net(), [0, 1])(**inputs),
        lambda: {"input": _x()},
    ),
    "data_parallel": Case(
        _of("data_parallel", "data_parallel"),
        lambda: {
            "module": _net(),
            "inputs": (),
            "device_ids": [0, 1],
            "output_device": 0,
            "dim": 0,
            "module_kwargs": {"input": _x()},
        },
    ),
    "parallel_apply": Case(
        _of("parallel_apply", "parallel_apply"),
        lambda: {
            "modules": [nn.Identity(), nn.Identity()],
            "inputs": _pair(),
            "kwargs_tup": ({}, {}),
            "devices": [0, 1],
        },
    ),
    "replicate": Case(_replicate, lambda: {"network": _net(), "devices": [0, 1], "detach": False}),
    "scatter": Case(
        _of("scatter_gather", "scatter"),
        lambda: {"inputs": (_x(),), "target_gpus": [0, 1], "dim": 0},
    ),
    "scatter_kwargs": Case(
        _of("scatter_gather", "scatter_kwargs"),
        lambda: {"inputs": (_x(),), "kwargs": {"x": _x()}, "target_gpus": [0, 1], "dim": 0},
    ),
    "gather": Case(
        _of("scatter_gather", "gather"),
        lambda: {"outputs": _pair(), "target_device": 0, "dim": 0},
    ),
    "comm.broadcast": Case(
        _of("comm", "broadcast"), lambda: {"tensor": _x(), "devices": [0, 1], "out": None}
    ),
    "comm.broadcast into out": Case(
        _of("comm", "broadcast"), lambda: {"tensor": _x(), "out": _pair()}
    ),
    "comm.broadcast_coalesced": Case(
        _of("comm", "broadcast_coalesced"),
        lambda: {"tensors": [_x(), _x()], "devices": [0, 1], "buffer_size": 100},
    ),
    "comm.reduce_add": Case(
        _of("comm", "reduce_add"), lambda: {"inputs": _pair(), "destination": 0}
    ),
    "comm.reduce_add_coalesced": Case(
        _of("comm", "reduce_add_coalesced"),
        lambda: {"inputs": [[_x(0)], [_x(1)]], "destination": 0, "buffer_size": 100},
    ),
    "comm.scatter": Case(
        _of("comm", "scatter"),
        lambda: {
            "tensor": _x(),
            "devices": [0, 1],
            "chunk_sizes": [1, 3],
            "dim": 0,
            "streams": None,
        },
    ),
    "comm.scatter into out": Case(
        _of("comm", "scatter"),
        lambda: {"tensor": _x(), "dim": 0, "out": [_x(0, 2), _x(1, 2)]},
    ),
    "comm.gather": Case(
        _of("comm", "gather"), lambda: {"tensors": _pair(), "dim": 0, "destination": 0}
    ),
    "comm.gather into out": Case(
        _of("comm", "gather"), lambda: {"tensors": _pair(), "dim": 0, "out": _x(0, 8)}
    ),
    "functions.Broadcast": Case(
        _apply("Broadcast"), lambda: {"target_gpus": [0, 1], "input": _x()}
    ),
    "functions.ReduceAddCoalesced": Case(
        _apply("ReduceAddCoalesced"),
        lambda: {"destination": 0, "num_inputs": 1, "first": _x(0), "second": _x(1)},
    ),
    "functions.Scatter": Case(
        _apply("Scatter"),
        lambda: {"target_gpus": [0, 1], "chunk_sizes": [1, 3], "dim": 0, "input": _x()},
    ),
    "functions.Gather": Case(
        _apply("Gather"),
        lambda: {"target_device": 0, "dim": 0, "first": _x(0), "second": _x(1)},
    ),
}
