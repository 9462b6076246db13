"""What a row of the table is, and what the programs are made of."""

import threading
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "NUMBERS",
    "ROWS",
    "Row",
    "current",
    "device",
    "empty",
    "grad_of",
    "host",
    "in_a_thread",
    "pinned",
    "program",
    "send",
    "stream",
]

#: What every right program returns, in whatever order the devices take up their work.
NUMBERS = [1.0, 2.0, 3.0, 4.0]

_CUDA = "https://docs.nvidia.com/cuda/"
_API = _CUDA + "cuda-runtime-api/"
_TORCH = "https://docs.pytorch.org/docs/stable/"
_GITHUB = "https://github.com/pytorch/pytorch/"
#: Pages that state the rules; where no page of the documentation does, PyTorch's own words.
SOURCES = {
    "streams": _TORCH + "notes/cuda.html#cuda-streams",
    "backward": _TORCH + "notes/cuda.html#stream-semantics-of-backward-passes",
    "async": _TORCH + "notes/cuda.html#asynchronous-execution",
    "record_stream": _TORCH + "generated/torch.Tensor.record_stream.html",
    "wait_stream": _TORCH + "generated/torch.cuda.Stream_class.html",
    "synchronize": _TORCH + "generated/torch.cuda.synchronize.html",
    "nonzero": _TORCH + "generated/torch.nonzero.html",
    "views": _GITHUB + "pull/27371",
    "peers": _GITHUB + "blob/main/aten/src/ATen/native/cuda/Copy.cu",
    "thread-streams": _GITHUB + "blob/main/c10/cuda/CUDAStream.cpp",
    "sync-behaviour": _API + "api-sync-behavior.html",
    "default-stream": _API + "stream-sync-behavior.html",
    "events": _API + "group__CUDART__EVENT.html",
    "stream-calls": _API + "group__CUDART__STREAM.html",
    "model": _CUDA + "cuda-c-programming-guide/index.html#streams",
}


class Row(NamedTuple):
    """A wrong program and its mended twin."""

    name: str
    #: Makes the program wrong or right, and returns numbers that the host has read.
    run: Callable[[bool], list[float]]
    #: The page whose rule decides.
    source: str
    #: Whether copies that are made as late as they may be deliver wrong numbers.
    late: bool


ROWS: list[Row] = []


def program(source: str, *, late: bool = True) -> Callable[[Callable[[bool], Tensor]], Row]:
    """Add a function to the table; the host reads what it returns, on its current stream."""

    def add(function: Callable[[bool], Tensor]) -> Row:
        name = function.__name__.replace("_", "-")
        row = Row(name, lambda right: function(right).tolist(), SOURCES[source], late)
        ROWS.append(row)
        return row

    return add


def device(index: int) -> torch.device:
    """Give device ``index``."""
    return torch.device("sim", index)


def stream(index: int) -> torch.Stream:
    """Make a stream of device ``index``."""
    return torch.Stream(device=device(index))


def current(index: int) -> torch.Stream:
    """Give the current stream of device ``index``."""
    return torch.accelerator.current_stream(device(index))


def host() -> Tensor:
    """Make the numbers in ordinary memory of the host."""
    return torch.tensor(NUMBERS)


def pinned() -> Tensor:
    """Make the numbers in pinned memory of the host."""
    return host().pin_memory()


def send(index: int) -> Tensor:
    """Copy the numbers to device ``index``; the host does not wait."""
    return pinned().to(device(index), non_blocking=True)


def grad_of(leaf: Tensor) -> Tensor:
    """Give the gradient of ``leaf``, which has one."""
    assert leaf.grad is not None
    return leaf.grad


def empty(index: int, *size: int) -> Tensor:
    """Allocate memory on device ``index``, four numbers unless told otherwise."""
    return torch.empty(size or 4, device=device(index))


def in_a_thread(work: Callable[[], object]) -> None:
    """Let another thread do the work, and wait for the thread."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
