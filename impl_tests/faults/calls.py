"""Random calls of the public functions, which the strategies of the suite describe."""

import gc
import importlib
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from impl._copies import without_grad
from spec_tests import cuda_stand_ins, simulator
from spec_tests.harness import traverse
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import SIMULATED_DEVICES, Topology
from spec_tests.strategies import (
    coalesced,
    comm,
    data_parallel,
    functions,
    gather,
    parallel_apply,
    replicate,
    scatter_gather,
)
from spec_tests.strategies.data_parallel import DataParallelCall
from spec_tests.strategies.modules import Layer, flatten

__all__ = ["Call", "draw_call", "prepare", "tensors_in"]

T = TypeVar("T")
#: The implementation that computes the expected results.
_ORACLE = Target("spec_tests.oracle")
_TOPOLOGY = Topology("sim", tuple(range(SIMULATED_DEVICES)))
#: Kinds of layers. A recurrent layer replaces its lists of weights in forward. Parametrized layers
#: set grad mode and pickle their classes in code that an interrupt may leave in a wrong state.
_KINDS = tuple(
    kind
    for kind in data_parallel.PRECISE
    if kind not in ("lstm", "gru", "weight_norm", "orthogonal")
)
#: The number of examples that Hypothesis draws for a call. The first ones are small.
_EXAMPLES = 5


def _data_parallel_calls(**fields: object) -> st.SearchStrategy[DataParallelCall]:
    """Draw calls of networks, and calls with nested arguments, in grad mode."""
    calls = data_parallel.network_calls(kinds=_KINDS, grads=(True,)) | data_parallel.nested_calls()
    return calls.map(lambda call: replace(call, **fields))  # type: ignore[arg-type]


def _has_known_kinds(call: parallel_apply.ParallelApplyCall) -> bool:
    layers = (layer for module in call.modules for layer in flatten(module.parts))
    return all(layer.kind in _KINDS for layer in layers if isinstance(layer, Layer))


#: Name of a public function that runs modules -> a strategy of its calls.
_MODULE_CALLS: Mapping[str, st.SearchStrategy[Any]] = {
    "DataParallel": _data_parallel_calls(functional=False),
    "data_parallel": _data_parallel_calls(functional=True),
    "DataParallel.hold": _data_parallel_calls(functional=False),
    "parallel_apply": parallel_apply.parallel_apply_calls().filter(_has_known_kinds),
    "replicate": replicate.replicate_calls(kinds=_KINDS),
}
#: Name of a public function that copies tensors between devices -> a strategy of its calls.
_TRANSFERS: Mapping[str, st.SearchStrategy[Any]] = {
    "scatter": scatter_gather.scatter_calls(),
    "scatter_kwargs": scatter_gather.scatter_kwargs_calls(),
    "gather": gather.gather_calls(kinds=scatter_gather.SPLIT),
    "comm.broadcast": comm.broadcast_calls(),
    "comm.broadcast_coalesced": coalesced.broadcast_coalesced_calls(),
    "comm.reduce_add": coalesced.reduce_add_calls(),
    "comm.reduce_add_coalesced": coalesced.reduce_add_coalesced_calls(),
    "comm.scatter": comm.scatter_calls(),
    "comm.gather": comm.gather_calls(),
    "functions.Scatter": functions.scatter_applies(),
    "functions.Gather": functions.gather_applies(),
    "functions.Broadcast": functions.broadcast_applies(),
    "functions.ReduceAddCoalesced": functions.reduce_applies(),
}


def prepare(name: str) -> Target:
    """Import a target and register the devices. Use no device, so that this process can fork."""
    torch.set_num_threads(1)
    simulator.enable(SIMULATED_DEVICES)
    cuda_stand_ins.enable()
    target = Target(name)
    # The first backward needs this module.
    importlib.import_module("torch.fx.experimental.symbolic_shapes")
    # The first draws of Hypothesis are slow.
    for strategy in (*_MODULE_CALLS.values(), *_TRANSFERS.values()):
        _draw(strategy, random.Random(0))
    # A garbage collection in a forked process then skips all objects that exist now.
    gc.collect()
    gc.freeze()
    return target


class Call:
    """A call of a public function. Its arguments are made once, and each method uses them.

    Args:
        name: The name of the function.
        drawn: The description of the call that a strategy has drawn.
        options: Keyword arguments that only impl has.
        target: The implementation under test.

    Attributes:
        ordinals: The ordinals of the devices of the call; an ordinal may occur more than once.
        net: The module that runs in the call; None if no module runs.
    """

    def __init__(self, name: str, drawn: Any, options: Mapping[str, Any], target: Target) -> None:
        self._name, self._drawn, self._options, self._target = name, drawn, options, target
        self._inputs: dict[str, Any] = drawn.inputs(_TOPOLOGY)
        found = (tensor for _, tensor in traverse.tensors(self._inputs, ""))
        self._leaves = [tensor for tensor in found if tensor.requires_grad and tensor.is_leaf]
        self.ordinals = _ordinals_of(self._inputs.get("devices") if self.runs_modules else None)
        first_module = next(iter(self._inputs.get("modules", ())), None)
        self.net: nn.Module | None = self._inputs.get("module", first_module)

    def __repr__(self) -> str:
        options = f", {self._options}" if self._options else ""
        return f"{self._name}: {self._drawn}{options}"

    @property
    def runs_modules(self) -> bool:
        """Whether the function runs modules."""
        return self._name in _MODULE_CALLS

    def wrap_modules(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        """Replace each module among the arguments by ``wrap(module)``."""
        self._inputs = _with_modules(self._inputs, wrap)
        if self.net is not None:
            self.net = self._inputs.get("module") or self._inputs["modules"][0]

    def compute(self) -> list[Tensor]:
        """Call the target. Return the results and the gradients of the leaves, on the CPU."""
        return self._compute(self._target, self._inputs, self._options)

    def compute_expected(self) -> list[Tensor]:
        """Return the results and gradients of the oracle."""
        return self._compute(_ORACLE, _with_modules(self._inputs, _InAutocast), {})

    def drop_grads(self) -> None:
        """Free the gradients of the leaves."""
        for leaf in self._leaves:
            leaf.grad = None

    def _compute(
        self, target: Target, inputs: dict[str, Any], options: Mapping[str, Any]
    ) -> list[Tensor]:
        self.drop_grads()
        run = _RUNS.get(self._name, _run_transfer)
        outputs = tensors_in(run(self._drawn, inputs, target, options))
        with_grad = [output for output in outputs if output.requires_grad]
        if with_grad and torch.is_grad_enabled():
            _run_backward(with_grad)
        grads = [torch.empty(0) if each.grad is None else each.grad for each in self._leaves]
        return [_plain(tensor) for tensor in [*outputs, *grads]]


def draw_call(target: Target, rng: random.Random, *, only_modules: bool = False) -> Call:
    """Draw a call of a public function; more often one that runs modules, or always such a one."""
    strategies = _MODULE_CALLS if only_modules or rng.random() < 0.6 else _TRANSFERS
    has_hold = hasattr(target.data_parallel.DataParallel, "hold")
    name = rng.choice([each for each in strategies if has_hold or each != "DataParallel.hold"])
    drawn = _draw(strategies[name], rng)
    count = len(Call(name, drawn, {}, target).ordinals)
    options = {"in_turn": rng.random() < 0.3, "chunk_sizes": rng.choice([None, [1] * count])}
    function: Any = None
    if name in ("DataParallel", "DataParallel.hold"):
        function = target.data_parallel.DataParallel
    elif name == "parallel_apply":
        function = target.parallel_apply.parallel_apply
    known = inspect.signature(function).parameters if function else ()
    return Call(name, drawn, {key: options[key] for key in options if key in known}, target)


def tensors_in(value: object) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [tensor for _, tensor in traverse.tensors(value, "")]


def _draw(strategy: st.SearchStrategy[T], rng: random.Random) -> T:
    """Return a random example of a strategy. It depends on the state of ``rng`` only."""
    examples: list[T] = []
    callbacks = [*gc.callbacks]

    @seed(rng.randrange(2**32))
    @settings(
        max_examples=_EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        examples.append(example)

    collect()
    # Hypothesis measures garbage collections. Python ignores an interrupt in the callback.
    gc.callbacks[:] = callbacks
    return rng.choice(examples)


class _InAutocast(nn.Module):
    """A module that runs in the caller's autocast, which the oracle's threads do not have."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.is_enabled = inner, torch.is_autocast_enabled("sim")
        self.dtype = torch.get_autocast_dtype("sim")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the inner module."""
        with torch.autocast("sim", self.dtype, self.is_enabled):
            return self.inner(*args, **kwargs)


def _with_modules(
    inputs: Mapping[str, Any], wrap: Callable[[nn.Module], nn.Module]
) -> dict[str, Any]:
    changed = dict(inputs)
    if "module" in inputs:
        changed["module"] = wrap(inputs["module"])
    if "modules" in inputs:
        changed["modules"] = [*map(wrap, inputs["modules"])]
    return changed


def _ordinals_of(devices: Any) -> tuple[int, ...]:
    if devices is None:
        return _TOPOLOGY.ordinals
    indices = (each if isinstance(each, int) else torch.device(each).index for each in devices)
    return tuple(indices)


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return tensor.cpu().resolve_conj().resolve_neg()


def _run_backward(outputs: Sequence[Tensor]) -> None:
    # `torch.autograd.backward` removes the default device for a moment. After an interrupt in
    # this moment the default device would be lost. `_engine_run_backward` does not remove it.
    ones = (*map(torch.ones_like, outputs),)
    options = {"allow_unreachable": True, "accumulate_grad": True}
    _engine_run_backward(tuple(outputs), ones, False, False, (), **options)


# The methods `run` of the drawn calls of modules are not used: they set grad mode in a `with`
# block, and an interrupt while the block is entered or left may leave grad mode off.
def _run_transfer(drawn: Any, inputs: Any, target: Target, _: Mapping[str, Any]) -> Any:
    return drawn.run(target, inputs)


def _wrap(drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]) -> Any:
    # The constructor calls `module.to`, in which an interrupt may leave grad mode off.
    if "wrapper" not in inputs:
        inputs["wrapper"] = target.data_parallel.DataParallel(
            inputs["module"], inputs["devices"], inputs["output"], drawn.dim, **options
        )
    return inputs["wrapper"]


def _run_wrapper(drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]) -> Any:
    return _wrap(drawn, inputs, target, options)(*inputs["args"], **inputs["kwargs"])


@without_grad
def _run_hold(drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]) -> Any:
    wrapper = _wrap(drawn, inputs, target, options)
    with getattr(wrapper, "hold", nullcontext)():
        return [wrapper(*inputs["args"], **inputs["kwargs"]) for _ in range(2)]


def _run_function(drawn: Any, inputs: Any, target: Target, _: Mapping[str, Any]) -> Any:
    return target.data_parallel.data_parallel(
        inputs["module"],
        inputs["args"],
        inputs["devices"],
        inputs["output"],
        drawn.dim,
        inputs["kwargs"] or None,
    )


def _run_parallel_apply(
    drawn: Any, inputs: Any, target: Target, options: Mapping[str, Any]
) -> Any:
    return target.parallel_apply.parallel_apply(
        inputs["modules"], inputs["inputs"], None, inputs["devices"], **options
    )


def _run_replicate(drawn: Any, inputs: Any, target: Target, _: Mapping[str, Any]) -> Any:
    # With `detach`, the copies are new leaves, whose gradients are not computed.
    run = without_grad(_run_replicas) if drawn.detach else _run_replicas
    return run(drawn, inputs, target)


def _run_replicas(drawn: Any, inputs: Any, target: Target) -> Any:
    replicas = target.replicate.replicate(inputs["module"], inputs["devices"], drawn.detach)
    return [replica(x) for replica, x in zip(replicas, inputs["rows"], strict=True)]


#: Name of a public function that runs modules -> a function that calls it.
_RUNS = {
    "DataParallel": _run_wrapper,
    "data_parallel": _run_function,
    "DataParallel.hold": _run_hold,
    "parallel_apply": _run_parallel_apply,
    "replicate": _run_replicate,
}
