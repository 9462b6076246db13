"""Calls of the public functions that run modules."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from impl._comm.grad_mode import without_grad

from .nets import FaultyNet
from .setting import Call, Setting, compute_with_grads

__all__ = ["MODULE_CALLS"]


def _net_call(
    net: FaultyNet, run: Callable[[], Any], x: Tensor, scale: Tensor, replicas: bool
) -> Call:
    """Return a call of ``run``. The expected result is that of ``net(x, scale)`` on one device."""
    leaves = tuple(net.parameters())
    return Call(
        lambda: compute_with_grads(run, leaves),
        lambda: compute_with_grads(lambda: net(x, scale), leaves),
        leaves,
        net,
        replicas,
    )


def _data_parallel_class(setting: Setting) -> Call:
    source = setting.ordinals[0]
    net, rows = setting.build_net(source), setting.rng.randint(1, 9)
    wrapper_class = setting.target.data_parallel.DataParallel
    options = setting.options(
        wrapper_class,
        in_turn=lambda: setting.rng.random() < 0.3,
        chunk_sizes=lambda: setting.rng.choice([None, [1] * len(setting.ordinals)]),
    )
    output = setting.rng.choice(setting.ordinals)
    wrapper = wrapper_class(net, list(setting.ordinals), output, **options)
    x = setting.tensor(rows, 3, ordinal=source)
    scale = setting.tensor(rows, 2, ordinal=source)

    def run() -> Any:
        return wrapper(setting.boxed(x), scale=scale)

    return _net_call(net, run, x, scale, replicas=len(setting.ordinals) > 1)


def _data_parallel_function(setting: Setting) -> Call:
    source = setting.ordinals[0]
    net, rows = setting.build_net(source), setting.rng.randint(1, 9)
    x = setting.tensor(rows, 3, ordinal=source)
    scale = setting.tensor(rows, 2, ordinal=source)

    def run() -> Any:
        arguments = (setting.boxed(x),)
        return setting.target.data_parallel.data_parallel(
            net, arguments, list(setting.ordinals), module_kwargs={"scale": scale}
        )

    return _net_call(net, run, x, scale, replicas=len(setting.ordinals) > 1)


def _hold(setting: Setting) -> Call:
    source = setting.ordinals[0]
    net, rows = setting.build_net(source).eval(), setting.rng.randint(1, 9)
    wrapper = setting.target.data_parallel.DataParallel(net, list(setting.ordinals))
    x = setting.tensor(rows, 3, ordinal=source)
    scale = setting.tensor(rows, 2, ordinal=source)

    # `with torch.no_grad()` is not used: an interrupt while the block is entered or left may leave
    # grad mode off.
    @without_grad
    def run() -> list[Tensor]:
        with wrapper.hold():
            outputs = [wrapper(setting.boxed(x), scale=scale) for _ in range(2)]
        return compute_with_grads(lambda: outputs, ())

    @without_grad
    def expected() -> list[Tensor]:
        return compute_with_grads(lambda: [net(x, scale)] * 2, ())

    return Call(run, expected, net=net, replicas=len(setting.ordinals) > 1)


def _parallel_apply(setting: Setting) -> Call:
    nets = [setting.build_net(ordinal) for ordinal in setting.ordinals]
    inputs = [setting.tensor(2, 3, ordinal=ordinal) for ordinal in setting.ordinals]
    scales = [setting.tensor(2, 2, ordinal=ordinal) for ordinal in setting.ordinals]
    function = setting.target.parallel_apply.parallel_apply
    options = setting.options(function, in_turn=lambda: setting.rng.random() < 0.3)
    devices = setting.rng.choice([None, list(setting.ordinals)])

    def run() -> Any:
        arguments = setting.listed((x,) for x in inputs)
        kwargs = tuple({"scale": scale} for scale in scales)
        return function(nets, arguments, kwargs, devices, **options)

    def plain() -> Any:
        return [net(x, scale) for net, x, scale in zip(nets, inputs, scales, strict=True)]

    leaves = tuple(parameter for net in nets for parameter in net.parameters())
    return Call(
        lambda: compute_with_grads(run, leaves),
        lambda: compute_with_grads(plain, leaves),
        leaves,
        nets[0],
        replicas=True,
    )


def _replicate(setting: Setting) -> Call:
    net, detach = setting.build_net(setting.ordinals[0]), setting.rng.random() < 0.3
    inputs = [setting.tensor(2, 3, ordinal=ordinal) for ordinal in setting.ordinals]

    def run() -> Any:
        devices = setting.listed(setting.ordinals)
        replicas = setting.target.replicate.replicate(net, devices, detach)
        return [replica(x) for replica, x in zip(replicas, inputs, strict=True)]

    def plain() -> Any:
        return [net(x.to(net.shift.device)) for x in inputs]

    # With `detach`, no gradients are computed: the copies are new leaves, and only the first
    # replica, which shares the parameters of `net`, would add gradients to `net`.
    leaves = () if detach else tuple(net.parameters())

    def compute(function: Callable[[], Any]) -> list[Tensor]:
        return compute_with_grads(function, leaves)

    if detach:
        compute = without_grad(compute)
    return Call(partial(compute, run), partial(compute, plain), leaves, net)


#: Name of a public function -> a function that builds a call of it.
MODULE_CALLS: dict[str, Callable[[Setting], Call]] = {
    "DataParallel": _data_parallel_class,
    "data_parallel": _data_parallel_function,
    "DataParallel.hold": _hold,
    "parallel_apply": _parallel_apply,
    "replicate": _replicate,
}
