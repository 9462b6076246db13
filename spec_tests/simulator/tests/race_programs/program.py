"""The registry of race programs, and the functions that the programs call."""

import threading
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

#: The result of every program without a race, in any execution order of the streams.
NUMBERS = [1.0, 2.0, 3.0, 4.0]

_CUDA = "https://docs.nvidia.com/cuda/"
_API = _CUDA + "cuda-runtime-api/"
_TORCH = "https://docs.pytorch.org/docs/stable/"
_GITHUB = "https://github.com/pytorch/pytorch/"
#: For each value of the argument ``source`` of `race_program`: the URL of the page that says which
#: accesses are ordered.
#: If no page of the documentation says so, the URL is that of PyTorch's source or a pull request.
SOURCE_URLS = {
    "streams": _TORCH + "notes/cuda.html#cuda-streams",
    "backward": _TORCH + "notes/cuda.html#stream-semantics-of-backward-passes",
    "async": _TORCH + "notes/cuda.html#asynchronous-execution",
    "record_stream": _TORCH + "generated/torch.Tensor.record_stream.html",
    "synchronize": _TORCH + "generated/torch.cuda.synchronize.html",
    "nonzero": _TORCH + "generated/torch.nonzero.html",
    "peers": _GITHUB + "blob/main/aten/src/ATen/native/cuda/Copy.cu",
    "sync-behaviour": _API + "api-sync-behavior.html",
    "events": _API + "group__CUDART__EVENT.html",
    "stream-calls": _API + "group__CUDART__STREAM.html",
    "model": _CUDA + "cuda-c-programming-guide/index.html#streams",
}


class Program(NamedTuple):
    """A program with a variant that races and a variant that does not."""

    name: str
    #: Runs the variant that the argument ``correct`` selects, and returns the result as numbers.
    run: Callable[[bool], list[float]]
    #: URL of the page that says which accesses are ordered.
    source: str
    #: Whether the variant that races returns wrong numbers if copies are deferred (--late-copies).
    late_copies: bool


PROGRAMS: list[Program] = []


def race_program(
    source: str, *, late_copies: bool = True
) -> Callable[[Callable[[bool], Tensor]], Program]:
    """Return a decorator that registers a function as a race program.

    The function returns a tensor, which the host then reads on the current stream.
    """

    def register(function: Callable[[bool], Tensor]) -> Program:
        name = function.__name__.replace("_", "-")
        page = SOURCE_URLS[source]
        program = Program(name, lambda correct: function(correct).tolist(), page, late_copies)
        PROGRAMS.append(program)
        return program

    return register


def device(index: int) -> torch.device:
    """Return device ``index``."""
    return torch.device("sim", index)


def new_stream(index: int) -> torch.Stream:
    """Create a stream of device ``index``."""
    return torch.Stream(device=device(index))


def current_stream(index: int) -> torch.Stream:
    """Return the current stream of device ``index``."""
    return torch.accelerator.current_stream(device(index))


def host_tensor() -> Tensor:
    """Return ``NUMBERS`` in pageable memory of the host."""
    return torch.tensor(NUMBERS)


def pinned_tensor() -> Tensor:
    """Return ``NUMBERS`` in pinned memory of the host."""
    return host_tensor().pin_memory()


def copy_to(index: int) -> Tensor:
    """Copy ``NUMBERS`` from pinned memory to device ``index``; the host does not wait."""
    return pinned_tensor().to(device(index), non_blocking=True)


def empty(index: int, *size: int) -> Tensor:
    """Allocate a tensor of shape ``size``, by default 4, on device ``index``."""
    return torch.empty(size or 4, device=device(index))


def run_in_thread(work: Callable[[], object]) -> None:
    """Call ``work`` in a new thread and wait for the thread."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
