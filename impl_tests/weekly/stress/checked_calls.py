"""The calls to impl that the threads make, each with a check of its result."""

import contextvars
import gc
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import impl
from impl import _replica_cache
from impl._settings import pause_gc
from impl_tests.helpers.cases import CASES, Net, RepeatedCall, Result, are_equal, create_tensor

__all__ = ["CheckedCalls"]

CheckedCall = Callable[[random.Random], None]
#: Seconds after which a wait at a barrier fails.
_BARRIER_TIMEOUT = 10
_CONTEXT_VAR = contextvars.ContextVar[int]("value")
#: The thread-local object of all calls. impl must run each replica without a value in this object.
_THREAD_LOCAL = threading.local()


class _CountingWrapper(impl.DataParallel[nn.Module]):
    """A wrapper that counts the calls of ``replicate``."""

    replications = 0

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        self.replications += 1
        return super().replicate(module, device_ids)


class CheckedCalls(dict[str, CheckedCall]):
    """Name in the printed counts -> call. All threads use the same wrappers.

    Args:
        devices: The simulated devices.
    """

    def __init__(self, devices: list[torch.device]) -> None:
        self._devices = devices
        self._kept = _CountingWrapper(Net().eval(), devices)
        self._frozen = impl.DataParallel(
            Net().requires_grad_(False), devices, cache_frozen_parameters=True
        )
        super().__init__(
            {
                "state of parallel_apply": self._check_state,
                "errors of parallel_apply": self._check_errors,
                "hold": self._check_hold,
                "map": self._check_map,
                "frozen parameters": self._check_frozen,
                "garbage collector": _check_pause_gc,
            }
        )
        for name, case in CASES.items():
            if case.has_faults:
                call = RepeatedCall(name)
                self[name] = partial(_check_case, call, call.compute(call.create_arguments()))

    @contextmanager
    def run_round(self) -> Iterator[None]:
        """Hold replicas in a ``with`` block. Check the state of impl after it.

        Raises:
            AssertionError: impl built the kept replicas twice, still keeps replicas, or has not
                enabled the garbage collector again.
        """
        self._kept.replications = 0
        with self._kept.hold():
            yield
        count, kept = self._kept.replications, _replica_cache.ReplicaCache.find_active(self._kept)
        assert count <= 1, f"one hold() built replicas {count} times"
        assert kept is None, "a wrapper keeps replicas outside of hold()"
        assert gc.isenabled(), "the garbage collector is off outside of pause_gc"

    def _draw_devices(self, rng: random.Random) -> list[torch.device]:
        return rng.sample(self._devices, rng.randint(2, len(self._devices)))

    def _draw_input(self, rng: random.Random) -> Tensor:
        shape = rng.randint(1, 9), 3
        return create_tensor(*shape, device=self._devices[0], start=rng.randint(0, 9))

    def _check_state(self, rng: random.Random) -> None:
        """Check that modules run at the same time, each with the caller's thread state."""
        devices = self._draw_devices(rng)
        value, has_grad = rng.randint(0, 10**6), rng.random() < 0.5
        _CONTEXT_VAR.set(value)
        modules = [_WaitForOthers(threading.Barrier(len(devices)))] * len(devices)
        inputs = [create_tensor(2, device=device) for device in devices]
        with torch.set_grad_enabled(has_grad):
            found = impl.parallel_apply(modules, inputs, None, devices)
        for (y, index, grad, was_empty), device in zip(found, devices, strict=True):
            _check_equal(y, create_tensor(2, start=value))
            if (index, grad, was_empty) != (device.index, has_grad, True):
                raise AssertionError(f"wrong state on {device}: {index}, {grad}, {was_empty}")

    def _check_errors(self, rng: random.Random) -> None:
        """Check that parallel_apply raises the first of several errors, also in nested calls."""
        devices = self._draw_devices(rng)
        modules = [_FailingModule(number) for number in range(len(devices))]
        try:
            inputs = [create_tensor(2, device=device) for device in devices]
            impl.parallel_apply(modules, inputs, in_turn=rng.random() < 0.5)
        except KeyError as error:
            text = str(error)
            if "in replica 1 on device" not in text or "error 1" not in text:
                raise AssertionError(f"not the error of replica 1: {text}") from None
        else:
            raise AssertionError("no error was raised")

    def _check_hold(self, rng: random.Random) -> None:
        """Check a call inside of hold(), in which all threads use the same replicas."""
        x = self._draw_input(rng)
        with torch.no_grad(), self._kept.hold():
            _check_equal(self._kept(x), self._kept.module(x))

    def _check_map(self, rng: random.Random) -> None:
        """Check a map inside of hold(). Half of the maps end before all outputs were taken."""
        batches = [self._draw_input(rng) for _ in range(rng.randint(1, 6))]
        count = rng.choice([len(batches), rng.randint(0, len(batches))])
        with torch.no_grad(), self._kept.hold():
            outputs = self._kept.map(batches, in_flight=rng.randint(1, 12))
            for x, output in zip(batches[:count], outputs, strict=False):
                _check_equal(output, self._kept.module(x))

    def _check_frozen(self, rng: random.Random) -> None:
        """Check a call with kept copies of parameters. A step of an optimizer drops copies."""
        if rng.random() < 0.3:
            alias = nn.Parameter(next(self._frozen.module.parameters()).data)
            alias.grad = torch.zeros_like(alias)
            torch.optim.SGD([alias], lr=0.1).step()
        x = self._draw_input(rng)
        _check_equal(self._frozen(x), self._frozen.module(x))


def _check_equal(found: Tensor, expected: Tensor) -> None:
    if not torch.equal(found.cpu(), expected.cpu()):
        raise AssertionError(f"wrong result: {found.cpu().tolist()}, not {expected.tolist()}")


def _check_case(call: RepeatedCall, expected: Result, _: random.Random) -> None:
    found = call.compute(call.create_arguments())
    if not are_equal(found, expected):
        raise AssertionError(f"wrong result: {found}, not {expected}")


class _WaitForOthers(nn.Module):
    """A module that waits until all replicas run, and returns the state that it observes."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    def forward(self, x: Tensor) -> tuple[Tensor, int, bool, bool]:
        was_empty = not hasattr(_THREAD_LOCAL, "value")
        _THREAD_LOCAL.value = _CONTEXT_VAR.get()
        self.barrier.wait(_BARRIER_TIMEOUT)
        return x + _THREAD_LOCAL.value, x.device.index, torch.is_grad_enabled(), was_empty


class _FailingModule(nn.Module):
    """A module that calls parallel_apply, and then raises an error unless its number is 0."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        negative, _ = impl.parallel_apply([torch.neg, torch.abs], [x, x])
        _check_equal(negative, -x)
        if self.number:
            raise KeyError(f"error {self.number}")
        return x


def _check_pause_gc(_: random.Random) -> None:
    """Check that the garbage collector is off inside a block of pause_gc."""
    with pause_gc():
        if gc.isenabled():
            raise AssertionError("the garbage collector is on inside a block of pause_gc")
