"""The jobs that the threads run: calls to impl, each with a check of its result."""

import contextvars
import gc
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import impl
from impl import comm, functions
from impl._devices import side_stream
from impl._settings import pause_gc
from impl._threads import _Pool

from .sharing import SharedModules, Total, build_net, create_tensor, flat_gradient

__all__ = ["JOBS", "Job"]

Job = Callable[[SharedModules, random.Random], None]
#: Seconds after which a wait at a barrier fails.
BARRIER_TIMEOUT = 10
_CONTEXT_VAR = contextvars.ContextVar[int]("value")
#: The thread-local object of all jobs. impl must run each replica without a value in this object.
_THREAD_LOCAL = threading.local()


def _check_equal(found: Tensor, expected: Tensor) -> None:
    if not torch.equal(found.cpu(), expected.cpu()):
        raise AssertionError(f"wrong result: {found.cpu().tolist()}, not {expected.tolist()}")


def _draw_devices(shared: SharedModules, rng: random.Random) -> list[torch.device]:
    return rng.sample(shared.devices, rng.randint(2, len(shared.devices)))


def _check_comm(shared: SharedModules, rng: random.Random) -> None:
    """Check broadcast, scatter and gather of comm."""
    devices = _draw_devices(shared, rng)
    x = create_tensor(rng.randint(len(devices), 9), 3, device=devices[0], start=rng.randint(0, 99))
    for copy in comm.broadcast(x, devices):
        _check_equal(copy, x)
    chunks = comm.scatter(x, devices)
    _check_equal(torch.cat([chunk.cpu() for chunk in chunks]), x)
    _check_equal(comm.gather(chunks, 0, devices[-1]), x)


def _check_coalesced(shared: SharedModules, rng: random.Random) -> None:
    """Check broadcast_coalesced and reduce_add_coalesced."""
    devices = _draw_devices(shared, rng)
    tensors = [create_tensor(size, 2, device=devices[0]) for size in range(1, rng.randint(3, 12))]
    rows = comm.broadcast_coalesced(tensors, devices, buffer_size=rng.choice([16, 10**6]))
    for total, tensor in zip(comm.reduce_add_coalesced(rows, devices[0]), tensors, strict=True):
        _check_equal(total, tensor * len(devices))


def _check_functions(shared: SharedModules, rng: random.Random) -> None:
    """Check Scatter of a CPU tensor, Gather, second derivatives, and the cache of side streams."""
    devices = _draw_devices(shared, rng)
    x = create_tensor(len(devices) * 2, 2).requires_grad_()
    chunks = functions.Scatter.apply(devices, None, 0, x)  # type: ignore[no-untyped-call] # in torch
    squares = [chunk**2 for chunk in chunks]
    y = functions.Gather.apply(devices[0], 0, *squares)  # type: ignore[no-untyped-call] # in torch
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    _check_equal(grad.detach(), 2 * x.detach())
    _check_equal(torch.autograd.grad(grad.sum(), x)[0], torch.full_like(x, 2))
    if side_stream(devices[0]) is not side_stream(devices[0]):
        raise AssertionError(f"{devices[0]} has two side streams")


def _check_scatter_gather(shared: SharedModules, rng: random.Random) -> None:
    """Check scatter and gather of nested values, markers and packed sequences."""
    devices = _draw_devices(shared, rng)
    count = len(devices)
    x = create_tensor(count * 2, 3, device=devices[0])
    lengths = torch.tensor([3] * (count * 2))
    packed = pack_padded_sequence(x.unsqueeze(2), lengths, batch_first=True)
    value = {"x": [x, (x + 1, "text")], "all": impl.Whole(x), "packed": packed}
    parts = impl.scatter(value, devices)
    for part in parts:
        _check_equal(part["all"], x)
    joined = impl.gather([{"x": part["x"][0], "y": part["x"][1][0]} for part in parts], "cpu")
    _check_equal(joined["x"], x)
    _check_equal(joined["y"], x + 1)
    rows = [pad_packed_sequence(part["packed"], batch_first=True)[0].cpu() for part in parts]
    _check_equal(torch.cat(rows).squeeze(2), x)


def _check_replicate(shared: SharedModules, rng: random.Random) -> None:
    """Check replicas of a module that all threads share, and gradients of an unshared module."""
    devices = shared.devices[: rng.randint(2, len(shared.devices))]
    x = create_tensor(2, 3)
    expected = shared.net(x.to(devices[0]))
    for device, replica in zip(devices, impl.replicate(shared.net, devices), strict=True):
        _check_equal(replica(x.to(device)).detach(), expected.detach())
    unshared = build_net(devices[0])
    replicas = impl.replicate(unshared, devices)
    copies: list[Any] = [replica.get_submodule("3").weight for replica in replicas]
    torch.autograd.backward([copy.sum() for copy in copies])
    weight = unshared[3].get_parameter("weight")
    assert weight.grad is not None
    _check_equal(weight.grad, torch.full_like(weight, len(devices)))


class _WaitForOthers(nn.Module):
    """A module that waits until all replicas run, and returns the state that it observes."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    def forward(self, x: Tensor) -> tuple[Tensor, int, bool, bool]:
        was_empty = not hasattr(_THREAD_LOCAL, "value")
        _THREAD_LOCAL.value = _CONTEXT_VAR.get()
        self.barrier.wait(BARRIER_TIMEOUT)
        return x + _THREAD_LOCAL.value, x.device.index, torch.is_grad_enabled(), was_empty


def _check_parallel_apply(shared: SharedModules, rng: random.Random) -> None:
    """Check that modules run at the same time, each with the caller's thread state."""
    devices = _draw_devices(shared, rng)
    value, has_grad = rng.randint(0, 10**6), rng.random() < 0.5
    _CONTEXT_VAR.set(value)
    modules = [_WaitForOthers(threading.Barrier(len(devices)))] * len(devices)
    inputs = [create_tensor(2, device=device) for device in devices]
    with torch.set_grad_enabled(has_grad):
        found = impl.parallel_apply(modules, inputs, None, devices)
    for (y, index, grad, was_empty), device in zip(found, devices, strict=True):
        _check_equal(y, create_tensor(2) + value)
        if (index, grad, was_empty) != (device.index, has_grad, True):
            raise AssertionError(f"wrong state on {device}: {index}, {grad}, {was_empty}")


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


def _check_errors(shared: SharedModules, rng: random.Random) -> None:
    """Check that parallel_apply raises the first of several errors, also after nested calls."""
    devices = _draw_devices(shared, rng)
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


def _check_shared_wrapper(shared: SharedModules, rng: random.Random) -> None:
    """Check a wrapper that all threads call."""
    x = create_tensor(rng.randint(1, 9), 3, device=shared.devices[0], start=rng.randint(0, 9))
    with torch.set_grad_enabled(rng.random() < 0.5):
        _check_equal(shared.wrapper(x).detach(), shared.net(x).detach())


def _check_training(shared: SharedModules, rng: random.Random) -> None:
    """Check that a module that a wrapper trains has the gradients of an equal plain module."""
    others = [shared.devices[0], *rng.sample(shared.devices[1:], 2)]
    devices = rng.choice([others, [torch.device("cpu")] * 3])
    wrapped, plain = build_net(devices[0]), build_net(devices[0])
    net = impl.DataParallelWithLoss(
        wrapped, Total(), devices, in_turn=rng.random() < 0.3, chunk_sizes=[1, 2, 1]
    )
    x = create_tensor(rng.randint(4, 12), 3, device=devices[0])
    for _ in range(2):
        net(x, target=None).backward()
        plain(x).sum().backward()
    _check_equal(flat_gradient(wrapped), flat_gradient(plain))


def _check_cpu_replicas(shared: SharedModules, rng: random.Random) -> None:
    """Check DataParallel with three replicas on the CPU."""
    net = build_net("cpu")
    x = create_tensor(rng.randint(1, 9), 3)
    _check_equal(impl.DataParallel(net, ["cpu"] * 3)(x).detach(), net(x).detach())


def _check_hold(shared: SharedModules, rng: random.Random) -> None:
    """Check a call inside of hold(). hold() caches replicas; all threads use the same wrapper."""
    x = create_tensor(rng.randint(1, 9), 3, device=shared.devices[0], start=rng.randint(0, 9))
    with torch.no_grad(), shared.held.hold():
        _check_equal(shared.held(x), shared.held.module(x))


def _check_frozen(shared: SharedModules, rng: random.Random) -> None:
    """Check a call with kept copies of frozen parameters. A step of an optimizer drops copies."""
    if rng.random() < 0.3:
        alias = nn.Parameter(next(shared.frozen.module.parameters()).data)
        alias.grad = torch.zeros_like(alias)
        torch.optim.SGD([alias], lr=0.1).step()
    x = create_tensor(rng.randint(1, 9), 3, device=shared.devices[0], start=rng.randint(0, 9))
    _check_equal(shared.frozen(x), shared.frozen.module(x))


def _check_pool(shared: SharedModules, rng: random.Random) -> None:
    """Check that a pool of workers runs each function in its own thread, and ends all threads."""
    pool = _Pool()
    for _ in range(rng.randint(1, 5)):
        count = rng.randint(1, 4)
        barrier = threading.Barrier(count)
        pending = [pool.start(partial(barrier.wait, BARRIER_TIMEOUT)) for _ in range(count)]
        results = [call.wait() for call in pending]
        if sorted(results, key=str) != list(range(count)):
            raise AssertionError(f"{count} functions that wait for each other returned {results}")
    threads = [*pool._threads]
    pool.close()
    if any(thread.is_alive() for thread in threads):
        raise AssertionError("threads of a closed pool still run")


def _check_pause_gc(shared: SharedModules, rng: random.Random) -> None:
    """Check that the garbage collector is off inside a block of pause_gc."""
    with pause_gc():
        if gc.isenabled():
            raise AssertionError("the garbage collector is on inside a block of pause_gc")


#: Name in the printed counts -> job.
JOBS: dict[str, Job] = {
    "comm": _check_comm,
    "comm, coalesced": _check_coalesced,
    "functions": _check_functions,
    "scatter_gather": _check_scatter_gather,
    "replicate": _check_replicate,
    "parallel_apply": _check_parallel_apply,
    "parallel_apply, errors": _check_errors,
    "data_parallel, shared": _check_shared_wrapper,
    "data_parallel, training": _check_training,
    "data_parallel, cpu": _check_cpu_replicas,
    "hold": _check_hold,
    "frozen parameters": _check_frozen,
    "worker pool": _check_pool,
    "garbage collector": _check_pause_gc,
}
