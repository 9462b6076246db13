"""What a thread does in a round: calls of which it knows the answer.

``k`` is the number of devices.
"""

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

from .sharing import Shared, net, numbered

__all__ = ["JOBS", "Job"]

Job = Callable[[Shared, random.Random], None]
#: Seconds that replicas wait for each other at most.
PATIENCE = 10
_WHERE = contextvars.ContextVar[int]("where")
#: One for all replicas of all jobs: none may find what another has put there.
_LOCAL = threading.local()


def _same(found: Tensor, expected: Tensor) -> None:
    if not torch.equal(found.cpu(), expected.cpu()):
        raise AssertionError(f"wrong result: {found.cpu().tolist()}, not {expected.tolist()}")


def _some(shared: Shared, rng: random.Random) -> list[torch.device]:
    return rng.sample(shared.devices, rng.randint(2, len(shared.devices)))


def _movements(shared: Shared, rng: random.Random) -> None:
    """comm: what is sent arrives."""
    comm, devices = shared.parallel.comm, _some(shared, rng)
    x = numbered(rng.randint(len(devices), 9), 3, device=devices[0], start=rng.randint(0, 99))
    for copy in comm.broadcast(x, devices):
        _same(copy, x)
    chunks = comm.scatter(x, devices)
    _same(torch.cat([chunk.cpu() for chunk in chunks]), x)
    _same(comm.gather(chunks, 0, devices[-1]), x)


def _buckets(shared: Shared, rng: random.Random) -> None:
    """comm: many tensors at once, and their sums."""
    comm, devices = shared.parallel.comm, _some(shared, rng)
    tensors = [numbered(size, 2, device=devices[0]) for size in range(1, rng.randint(3, 12))]
    rows = comm.broadcast_coalesced(tensors, devices, buffer_size=rng.choice([16, 10**6]))
    for total, tensor in zip(comm.reduce_add_coalesced(rows, devices[0]), tensors, strict=True):
        _same(total, tensor * len(devices))


def _functions(shared: Shared, rng: random.Random) -> None:
    """functions: out and back, twice differentiated, from the CPU by side streams."""
    functions, devices = shared.part("functions"), _some(shared, rng)
    x = numbered(len(devices) * 2, 2).requires_grad_()
    chunks = functions.Scatter.apply(devices, None, 0, x)
    y = functions.Gather.apply(devices[0], 0, *(chunk**2 for chunk in chunks))
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    _same(grad.detach(), 2 * x.detach())
    _same(torch.autograd.grad(grad.sum(), x)[0], torch.full_like(x, 2))
    one = shared.part("_device").side_stream
    if one(devices[0]) is not one(devices[0]):
        raise AssertionError(f"{devices[0]} has two side streams")


def _nested(shared: Shared, rng: random.Random) -> None:
    """scatter, gather: nested values, markers, packed sequences."""
    parallel, devices = shared.parallel, _some(shared, rng)
    k = len(devices)
    x = numbered(k * 2, 3, device=devices[0])
    lengths = torch.tensor([3] * (k * 2))
    packed = pack_padded_sequence(x.unsqueeze(2), lengths, batch_first=True)
    value = {"x": [x, (x + 1, "text")], "all": parallel.Whole(x), "packed": packed}
    parts = parallel.scatter(value, devices)
    for part in parts:
        _same(part["all"], x)
    joined = parallel.gather([{"x": part["x"][0], "y": part["x"][1][0]} for part in parts], "cpu")
    _same(joined["x"], x)
    _same(joined["y"], x + 1)
    rows = [pad_packed_sequence(part["packed"], batch_first=True)[0].cpu() for part in parts]
    _same(torch.cat(rows).squeeze(2), x)


def _replicas(shared: Shared, rng: random.Random) -> None:
    """replicate: a module that other threads replicate, too, and gradients of one's own."""
    devices = shared.devices[: rng.randint(2, len(shared.devices))]
    x = numbered(2, 3)
    expected = shared.net(x.to(devices[0]))
    for device, twin in zip(devices, shared.parallel.replicate(shared.net, devices), strict=True):
        _same(twin(x.to(device)).detach(), expected.detach())
    own = net(devices[0])
    twins = shared.parallel.replicate(own, devices)
    sum(twin[3].weight.sum().to(devices[0]) for twin in twins).backward()
    weight = own[3].get_parameter("weight")
    assert weight.grad is not None
    _same(weight.grad, torch.full_like(weight, len(devices)))


class _Meeting(nn.Module):
    """Comes back when all have come, and sees the caller's state and nobody else's."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    def forward(self, x: Tensor) -> tuple[Tensor, int, bool, bool]:
        was_fresh = not hasattr(_LOCAL, "held")
        _LOCAL.held = _WHERE.get()
        self.barrier.wait(PATIENCE)
        return x + _LOCAL.held, x.device.index, torch.is_grad_enabled(), was_fresh


def _meetings(shared: Shared, rng: random.Random) -> None:
    """parallel_apply: modules that wait for each other, each with a state of its own."""
    devices = _some(shared, rng)
    here, has_grad = rng.randint(0, 10**6), rng.random() < 0.5
    _WHERE.set(here)
    modules = [_Meeting(threading.Barrier(len(devices)))] * len(devices)
    inputs = [numbered(2, device=device) for device in devices]
    with torch.set_grad_enabled(has_grad):
        found = shared.parallel.parallel_apply(modules, inputs, None, devices)
    for (y, index, grad, was_fresh), device in zip(found, devices, strict=True):
        _same(y, numbered(2) + here)
        if (index, grad, was_fresh) != (device.index, has_grad, True):
            raise AssertionError(f"wrong state on {device}: {index}, {grad}, {was_fresh}")


class _Failing(nn.Module):
    """Raises, but for those that nest calls first."""

    def __init__(self, shared: Shared, number: int) -> None:
        super().__init__()
        self.shared, self.number = shared, number

    def forward(self, x: Tensor) -> Tensor:
        twice = self.shared.parallel.parallel_apply([torch.neg, torch.abs], [x, x])
        _same(twice[0], -x)
        if self.number:
            raise KeyError(f"the {self.number}th")
        return x


def _failures(shared: Shared, rng: random.Random) -> None:
    """parallel_apply: nested calls, and the first of several errors."""
    devices = _some(shared, rng)
    modules = [_Failing(shared, number) for number in range(len(devices))]
    try:
        inputs = [numbered(2, device=device) for device in devices]
        shared.parallel.parallel_apply(modules, inputs, in_turn=rng.random() < 0.5)
    except KeyError as error:
        text = str(error)
        if "in replica 1 on device" not in text or "the 1th" not in text:
            raise AssertionError(f"the wrong error: {text}") from None
    else:
        raise AssertionError("no error was raised")


def _shared_forward(shared: Shared, rng: random.Random) -> None:
    """DataParallel: a wrapper that all threads call."""
    x = numbered(rng.randint(1, 9), 3, device=shared.devices[0], start=rng.randint(0, 9))
    with torch.set_grad_enabled(rng.random() < 0.5):
        _same(shared.wrapper(x).detach(), shared.net(x).detach())


def _training(shared: Shared, rng: random.Random) -> None:
    """DataParallel: forward and backward of one's own module."""
    devices = [shared.devices[0], *rng.sample(shared.devices[1:], 2)]
    own, plain = net(devices[0]), net(devices[0])
    options: dict[str, Any] = {"in_turn": rng.random() < 0.3, "chunk_sizes": [1, 2, 1]}
    x = numbered(rng.randint(4, 12), 3, device=devices[0])
    for _ in range(2):
        shared.parallel.DataParallel(own, devices, **options)(x).sum().backward()
        plain(x).sum().backward()
    for one, other in zip(own.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        _same(one.grad, other.grad)


def _cpu_lanes(shared: Shared, rng: random.Random) -> None:
    """DataParallel on the CPU."""
    own = net("cpu")
    x = numbered(rng.randint(1, 9), 3)
    _same(shared.parallel.DataParallel(own, ["cpu"] * 3)(x).detach(), own(x).detach())


def _held_forward(shared: Shared, rng: random.Random) -> None:
    """hold: blocks in several threads, for one wrapper."""
    x = numbered(rng.randint(1, 9), 3, device=shared.devices[0], start=rng.randint(0, 9))
    with torch.no_grad(), shared.held.hold():
        _same(shared.held(x), shared.held.module(x))


def _pool(shared: Shared, rng: random.Random) -> None:
    """Threads that wait for work: none is lost, none works for two, and all end."""
    pool = shared.part("_threads.pool")._Pool()
    for _ in range(rng.randint(1, 5)):
        count = rng.randint(1, 4)
        barrier = threading.Barrier(count)
        pending = [pool.start(partial(barrier.wait, PATIENCE)) for _ in range(count)]
        found = [each.wait() for each in pending]
        if sorted(found, key=str) != list(range(count)):
            raise AssertionError(f"{count} functions that wait for each other gave {found}")
    threads = [*pool._threads]
    pool.close()
    if any(thread.is_alive() for thread in threads):
        raise AssertionError("a pool is closed, and its threads go on")


def _paused(shared: Shared, rng: random.Random) -> None:
    """The collector: off inside of blocks."""
    with shared.part("_compat.gc_pause").pause_gc():
        if gc.isenabled():
            raise AssertionError("the collector runs inside of a block")


#: By the name under which they are counted.
JOBS: dict[str, Job] = {
    "comm": _movements,
    "comm, coalesced": _buckets,
    "functions": _functions,
    "scatter_gather": _nested,
    "replicate": _replicas,
    "parallel_apply": _meetings,
    "parallel_apply, errors": _failures,
    "data_parallel, shared": _shared_forward,
    "data_parallel, training": _training,
    "data_parallel, cpu": _cpu_lanes,
    "held": _held_forward,
    "workers": _pool,
    "collector": _paused,
}
