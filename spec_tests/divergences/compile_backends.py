"""Back ends of torch.compile that need no compiler, and tell what they were given."""

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: What a thread may have set before it called backward.
SETTING: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="nothing")


class Counting:
    """Runs graphs as they were captured; notes the device of each."""

    def __init__(self) -> None:
        self.devices: list[torch.device] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Give what runs ``graph``."""
        self.devices.append(next(it.device for it in inputs if isinstance(it, Tensor)))
        return graph.forward


class Meeting:
    """Compiles backward apart, as AOTAutograd does; backward of all devices meets half way.

    Args:
        count: Of devices.
    """

    def __init__(self, count: int) -> None:
        self.seen: list[str] = []
        self._barrier = threading.Barrier(count, timeout=10)

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Give what runs ``graph``."""
        from torch._dynamo.backends.common import aot_autograd  # It takes seconds.

        return aot_autograd(fw_compiler=_as_it_is, bw_compiler=self._compile_backward)(
            graph, inputs
        )

    def _compile_backward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        def run(*args: Any) -> Any:
            self._barrier.wait()
            self.seen.append(SETTING.get())
            return graph.forward(*args)

        return _boxed(run)


def _as_it_is(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return _boxed(graph.forward)


def _boxed(run: Callable[..., Any]) -> Any:
    from functorch.compile import make_boxed_func  # type: ignore[import-untyped] # as above

    return make_boxed_func(run)


class Broken(nn.Module):
    """Two layers, between which nothing can be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """The layers, one after the other."""
        y: Tensor = self.one(x)
        torch._dynamo.graph_break()
        z: Tensor = self.other(y)
        return z


def frame_count() -> int:
    """Return how many frames torch.compile has looked at since :func:`reset_frame_count`."""
    found: int = torch._dynamo.utils.counters["frames"]["total"]
    return found


def compiled_files() -> list[str]:
    """Return the files of all frames that were compiled since :func:`reset_frame_count`."""
    found = torch._dynamo.utils.get_compilation_metrics()
    return [str(each.co_filename) for each in found]


def reset_frame_count() -> None:
    """Let :func:`frame_count` begin at 0."""
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
