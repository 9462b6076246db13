"""Calls of the public functions that copy tensors between devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .nets import pass_through
from .setting import Call, Setting, compute_with_grads, leaves_of

__all__ = ["TRANSFER_CALLS"]


def _call(
    setting: Setting, run: Callable[[], Any], expected: list[Tensor], *xs: Tensor, grad: int = 1
) -> Call:
    """Return a call that computes the results of ``run`` and the gradients of ``xs``.

    Args:
        setting: The setting of the call. The trigger may raise in the backward of each result.
        run: A function that calls the public function.
        expected: The right results.
        xs: The inputs that require gradients.
        grad: The right value of each element of the gradients of ``xs``: the number of results to
            which each element of ``xs`` contributes.
    """

    def compute() -> list[Tensor]:
        return compute_with_grads(
            lambda: [pass_through(each, setting.trigger) for each in leaves_of(run())], xs
        )

    def right() -> list[Tensor]:
        leaves = xs if torch.is_grad_enabled() else ()
        return [*expected, *(torch.full(x.shape, grad, dtype=x.dtype) for x in leaves)]

    return Call(compute, right, xs)


def _cpu(x: Tensor) -> Tensor:
    return x.detach().cpu()


def _distinct(setting: Setting) -> list[int]:
    return list(dict.fromkeys(setting.ordinals))


def _scatter(setting: Setting, *, with_kwargs: bool) -> Call:
    source = setting.rng.choice([None, setting.ordinals[0]])
    x = setting.tensor(len(setting.ordinals) * 2, 3, ordinal=source, grad=True)
    part = setting.target.scatter_gather

    def run() -> Any:
        devices = setting.listed(setting.ordinals)
        value = setting.listed([x]) if setting.containers else (x,)
        if with_kwargs:
            return part.scatter_kwargs(value, {"n": 5}, devices)[0]
        return part.scatter(value, devices)

    return _call(setting, run, list(torch.split(_cpu(x), 2)), x)


def _gather(setting: Setting) -> Call:
    xs = [setting.tensor(2, 3, ordinal=ordinal, grad=True) for ordinal in setting.ordinals]
    destination = setting.rng.choice(setting.ordinals)

    def run() -> Any:
        return setting.target.scatter_gather.gather(list(map(setting.boxed, xs)), destination)

    return _call(setting, run, [torch.cat([_cpu(x) for x in xs])], *xs)


def _broadcast(setting: Setting) -> Call:
    x = setting.tensor(3, ordinal=setting.ordinals[0])

    def run() -> Any:
        return setting.target.comm.broadcast(x, setting.listed(setting.ordinals))

    return _call(setting, run, [_cpu(x)] * len(setting.ordinals))


def _broadcast_coalesced(setting: Setting) -> Call:
    ordinals = _distinct(setting)
    xs = [setting.tensor(size, 2, ordinal=ordinals[0]) for size in range(1, 4)]
    size = setting.rng.choice([16, 10**6])

    def run() -> Any:
        return setting.target.comm.broadcast_coalesced(
            setting.listed(xs), setting.listed(ordinals), size
        )

    return _call(setting, run, list(map(_cpu, xs)) * len(ordinals))


def _reduce_add(setting: Setting) -> Call:
    ordinals = _distinct(setting)
    xs = [setting.tensor(3, ordinal=ordinal) for ordinal in ordinals]

    def run() -> Any:
        return setting.target.comm.reduce_add(setting.listed(xs), ordinals[-1])

    return _call(setting, run, [_cpu(xs[0]) * len(ordinals)])


def _reduce_add_coalesced(setting: Setting) -> Call:
    ordinals = _distinct(setting)
    rows = [[setting.tensor(n, 2, ordinal=ordinal) for n in (1, 2, 3)] for ordinal in ordinals]
    size = setting.rng.choice([16, 10**6])

    def run() -> Any:
        return setting.target.comm.reduce_add_coalesced(setting.listed(rows), ordinals[0], size)

    return _call(setting, run, [_cpu(x) * len(ordinals) for x in rows[0]])


def _comm_scatter(setting: Setting) -> Call:
    x = setting.tensor(len(setting.ordinals) * 2, 2, ordinal=setting.ordinals[0])

    def run() -> Any:
        return setting.target.comm.scatter(x, setting.listed(setting.ordinals))

    return _call(setting, run, list(torch.split(_cpu(x), 2)))


def _comm_gather(setting: Setting) -> Call:
    xs = [setting.tensor(2, 3, ordinal=ordinal) for ordinal in setting.ordinals]

    def run() -> Any:
        return setting.target.comm.gather(setting.listed(xs), 0, setting.ordinals[-1])

    return _call(setting, run, [torch.cat(list(map(_cpu, xs)))])


def _scatter_function(setting: Setting) -> Call:
    source = setting.rng.choice([None, setting.ordinals[0]])
    x = setting.tensor(len(setting.ordinals) * 2, 2, ordinal=source, grad=True)

    def run() -> Any:
        devices = setting.listed(setting.ordinals)
        return setting.target.functions.Scatter.apply(devices, None, 0, x)

    return _call(setting, run, list(torch.split(_cpu(x), 2)), x)


def _gather_function(setting: Setting) -> Call:
    xs = [setting.tensor(2, 3, ordinal=ordinal, grad=True) for ordinal in setting.ordinals]

    def run() -> Any:
        return setting.target.functions.Gather.apply(setting.ordinals[-1], 0, *xs)

    return _call(setting, run, [torch.cat(list(map(_cpu, xs)))], *xs)


def _broadcast_function(setting: Setting) -> Call:
    ordinals = _distinct(setting)
    xs = [setting.tensor(size, 2, ordinal=ordinals[0], grad=True) for size in (1, 3)]

    def run() -> Any:
        return setting.target.functions.Broadcast.apply(setting.listed(ordinals), *xs)

    return _call(setting, run, list(map(_cpu, xs)) * len(ordinals), *xs, grad=len(ordinals))


def _reduce_function(setting: Setting) -> Call:
    ordinals = _distinct(setting)
    xs = [setting.tensor(n, 2, ordinal=each, grad=True) for each in ordinals for n in (1, 3)]

    def run() -> Any:
        return setting.target.functions.ReduceAddCoalesced.apply(ordinals[0], 2, *xs)

    expected = [_cpu(x) * len(ordinals) for x in xs[:2]]
    return _call(setting, run, expected, *xs)


#: Name of a public function -> a function that builds a call of it.
TRANSFER_CALLS: dict[str, Callable[[Setting], Call]] = {
    "scatter": partial(_scatter, with_kwargs=False),
    "scatter_kwargs": partial(_scatter, with_kwargs=True),
    "gather": _gather,
    "comm.broadcast": _broadcast,
    "comm.broadcast_coalesced": _broadcast_coalesced,
    "comm.reduce_add": _reduce_add,
    "comm.reduce_add_coalesced": _reduce_add_coalesced,
    "comm.scatter": _comm_scatter,
    "comm.gather": _comm_gather,
    "functions.Scatter": _scatter_function,
    "functions.Gather": _gather_function,
    "functions.Broadcast": _broadcast_function,
    "functions.ReduceAddCoalesced": _reduce_function,
}
