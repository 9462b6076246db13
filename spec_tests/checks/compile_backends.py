"""Backends for torch.compile that run captured graphs without a compiler.

This file also has functions that read and reset the metrics of torch.compile.
"""

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: A context variable. A test sets it before backward and checks that backward sees the value.
SETTING: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="nothing")


class CountingBackend:
    """A backend that runs captured graphs eagerly and appends each graph's device to a list.

    The device is that of the first tensor that the graph takes.
    """

    def __init__(self) -> None:
        self.devices: list[torch.device] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Return a function that runs ``graph``."""
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        self.devices += [tensor.device for tensor in tensors[:1]]
        return graph.forward


class BarrierBackend:
    """A backend that makes the backward graphs of all devices wait for each other.

    Each backward graph waits at a barrier, so backward times out unless the graphs run
    concurrently.

    Args:
        device_count: The number of devices. The barrier waits for one graph for each device.
    """

    def __init__(self, device_count: int) -> None:
        self.settings: list[str] = []
        self._barrier = threading.Barrier(device_count, timeout=60)

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Return a function that runs ``graph``."""
        from torch._dynamo.backends.common import aot_autograd  # The import takes seconds.

        compile_graph = aot_autograd(
            fw_compiler=lambda graph, inputs: _box(graph.forward),
            bw_compiler=self._compile_backward,
        )
        return compile_graph(graph, inputs)

    def _compile_backward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        def run(*args: Any) -> Any:
            self._barrier.wait()
            self.settings.append(SETTING.get())
            return graph.forward(*args)

        return _box(run)


def _box(run: Callable[..., Any]) -> Any:
    from functorch.compile import make_boxed_func  # type: ignore[import-untyped] # no types

    return make_boxed_func(run)


class GraphBreaking(nn.Module):
    """Two layers with a graph break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of both layers."""
        y: Tensor = self.first(x)
        torch._dynamo.graph_break()
        z: Tensor = self.second(y)
        return z


def count_frames() -> int:
    """Return the number of frames that torch.compile has traced since `reset_metrics`."""
    found: int = torch._dynamo.utils.counters["frames"]["total"]
    return found


def list_compiled_files() -> list[str]:
    """Return the file of each frame that torch.compile has compiled since `reset_metrics`."""
    found = torch._dynamo.utils.get_compilation_metrics()
    return [str(metrics.co_filename) for metrics in found]


def reset_metrics() -> None:
    """Reset the results of `count_frames` and `list_compiled_files`."""
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
