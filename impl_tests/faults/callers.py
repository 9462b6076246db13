"""Threads that call DataParallel during a soak test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from impl_tests.stress.sharing import build_net, create_tensor
from spec_tests.harness.environment.target import Target

__all__ = ["THREADS", "Callers"]

THREADS = 8
#: Seconds between the end of a call and the next call of the same thread. The threads make more
#: than 1000 calls a minute.
_WAIT = 0.4
#: The devices of the wrappers. In a nested call, each outer replica runs two inner replicas on its
#: own device.
_DEVICES = (0, 1, 2)


class Callers:
    """Threads that call two shared DataParallel wrappers, a plain and a nested one, in turn.

    Attributes:
        calls: The number of calls that ended.
    """

    def __init__(self, target: Target) -> None:
        net = build_net("sim:0")
        data_parallel = target.data_parallel
        self._wrappers: tuple[nn.Module, ...] = (
            data_parallel.DataParallel(net, list(_DEVICES)),
            data_parallel.DataParallel(_Nested(net, data_parallel.data_parallel), list(_DEVICES)),
        )
        # The forwards of the first calls wait for each other. Each thread runs two inner replicas
        # on each device, and the main thread runs four replicas.
        meeting = _Meeting(THREADS * len(_DEVICES) * 2 + 4)
        nested = _Nested(meeting, data_parallel.data_parallel)
        self._first_calls = (
            data_parallel.DataParallel(nested, list(_DEVICES)),
            data_parallel.DataParallel(meeting, [0, 1, 2, 3]),
        )
        self._input = create_tensor(8, 3, device="sim:0")
        self._expected = net(self._input).detach()
        self._end = threading.Event()
        # Each running call holds a permit. A pause acquires all permits.
        self._permits = threading.Semaphore(THREADS)
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self.calls = 0

    @contextmanager
    def run(self) -> Iterator[None]:
        """Run the threads in a ``with`` block. At its end, raise the first error of a thread."""
        threads = [threading.Thread(target=self._call_until_end) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            self._first_calls[1](self._input)
            yield
        finally:
            self._end.set()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Wait until no call runs, and start no call inside the ``with`` block."""
        for _ in range(THREADS):
            self._permits.acquire()
        try:
            yield
        finally:
            self._permits.release(THREADS)

    def _call_until_end(self) -> None:
        number = 0
        try:
            self._first_calls[0](self._input)
            while not self._end.wait(_WAIT):
                with self._permits:
                    self._call(number)
                number += 1
        except BaseException as error:  # The main thread raises it.
            self._errors.append(error)

    def _call(self, number: int) -> None:
        x = self._input.clone().requires_grad_()
        output = self._wrappers[number % 2](x)
        output.sum().backward()
        if not torch.equal(output.detach(), self._expected):
            raise AssertionError(f"wrong output of call {number}")
        with self._lock:
            self.calls += 1


class _Meeting(nn.Module):
    """A module whose calls wait until ``calls`` of them run, each in its own thread."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(calls, timeout=60)

    def forward(self, x: Tensor) -> Tensor:
        self.barrier.wait()
        return x


class _Nested(nn.Module):
    """A module that calls ``data_parallel`` with two replicas on the device of its input."""

    def __init__(self, net: nn.Module, data_parallel: Callable[..., Tensor]) -> None:
        super().__init__()
        self.net = net
        self.data_parallel = data_parallel

    def forward(self, x: Tensor) -> Tensor:
        ordinal = x.device.index
        return self.data_parallel(self.net, x, [ordinal, ordinal])
