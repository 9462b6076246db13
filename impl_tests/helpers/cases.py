"""The public functions, except those of impl.distributed, with valid arguments.

``stress`` makes these calls in many threads at once, ``test_out_of_memory.py`` refuses their
memory, and ``test_arguments.py`` replaces each argument by wrong values.
"""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

import impl
from impl._settings import without_grad
from spec_tests.checks import nested_values

Function = Callable[..., Any]


class Case:
    """A public function with valid arguments.

    Args:
        find: A function that returns the public function, or a function that also runs the modules
            which the public function returns. All arguments are keywords.
        is_repeated: Whether programs repeat the call, also in several threads.
        values: The arguments. Functions and classes are called for a new argument.
    """

    def __init__(
        self, find: Callable[[], Function], /, *, is_repeated: bool = True, **values: Any
    ) -> None:
        self.find, self.is_repeated, self._values = find, is_repeated, values

    def arguments(self) -> dict[str, Any]:
        """Return new valid arguments."""
        return {
            name: value() if isinstance(value, FunctionType | type) else value
            for name, value in self._values.items()
        }


def create_tensor(*shape: int, device: torch.device | str = "cpu", start: int = 0) -> Tensor:
    """Return a tensor of consecutive integers as floats; sums of them are exact in any order."""
    count = torch.Size(shape).numel()
    return torch.arange(start, start + count, dtype=torch.float64).reshape(shape).to(device)


class Net(nn.Module):
    """A linear module and a buffer, on one device."""

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2).double()
        for parameter in self.linear.parameters():
            parameter.data = create_tensor(*parameter.shape)
        self.register_buffer("offset", torch.ones(2))
        self.offset: Tensor
        self.to(f"sim:{ordinal}")

    def forward(self, x: Tensor) -> Any:
        """Return the linear function of the input, plus the buffer."""
        return self.linear(x) + self.offset


def _x(ordinal: int = 0, rows: int = 4) -> Tensor:
    """Return an input of :class:`Net`."""
    return create_tensor(rows, 3, device=f"sim:{ordinal}")


def _leaf(ordinal: int = 0) -> Tensor:
    return _x(ordinal).requires_grad_()


def _pair() -> list[Tensor]:
    """Return an input on each device."""
    return [_x(ordinal) for ordinal in (0, 1)]


def _target() -> Tensor:
    return _x()[:, :2]


def _nets() -> list[nn.Module]:
    return [Net(0), Net(1)]


def _apply(name: str) -> Function:
    """Return a function that passes the values of its keyword arguments to ``Function.apply``."""
    return lambda **arguments: getattr(impl.functions, name).apply(*arguments.values())


def _wrapper(**options: Any) -> Any:
    return impl.DataParallel(Net(), [0, 1], **options)


def _replicate(**arguments: Any) -> Any:
    """Return the parameters of the replicas."""
    replicas = impl.replicate(**arguments)
    modules = [module for replica in replicas for module in replica.modules()]
    return [list(module._former_parameters.values()) for module in modules]


def _hold() -> Function:
    wrapper = _wrapper()

    @without_grad
    def call(**inputs: Any) -> Any:
        with wrapper.hold():
            return [wrapper(**inputs), wrapper(**inputs)]

    return call


def _map() -> Function:
    wrapper = _wrapper()
    return without_grad(lambda **arguments: [*wrapper.map(**arguments)])


def _install(**options: Any) -> Any:
    with impl.installed(**options):
        return nn.DataParallel(Net(), [0, 1])(_x())


#: For each public function, with words for the path through it: its case.
CASES: dict[str, Case] = {
    "DataParallel": Case(
        lambda: lambda **arguments: impl.DataParallel(**arguments)(_x()),
        is_repeated=False,
        module=Net,
        device_ids=[0, 1],
        output_device=0,
        dim=0,
        chunk_sizes=None,
        in_turn=True,
        scalar_warning=False,
        module_attributes=True,
        cache_frozen_parameters=True,
    ),
    "DataParallel.forward": Case(lambda: _wrapper(chunk_sizes=[1, 3]), x=_x),
    "data_parallel": Case(
        lambda: impl.data_parallel,
        module=Net,
        inputs=(),
        device_ids=[0, 1],
        output_device=0,
        dim=0,
        module_kwargs=lambda: {"x": _x()},
    ),
    "parallel_apply": Case(
        lambda: impl.parallel_apply,
        modules=_nets,
        inputs=_pair,
        kwargs_tup=({}, {}),
        devices=[0, 1],
    ),
    "replicate": Case(
        lambda: _replicate,
        network=Net,
        devices=[0, 1],
        detach=False,
        buffer_size=100,
        with_parameters=True,
    ),
    "scatter": Case(
        lambda: impl.scatter, inputs=lambda: (_x(),), target_gpus=[0, 1], dim=0, chunk_sizes=None
    ),
    "scatter_kwargs": Case(
        lambda: impl.scatter_gather.scatter_kwargs,
        inputs=lambda: (_x(),),
        kwargs=lambda: {"x": _x()},
        target_gpus=[0, 1],
        dim=0,
        chunk_sizes=None,
    ),
    "gather": Case(
        lambda: impl.gather, outputs=_pair, target_device=0, dim=0, scalar_warning=True
    ),
    "comm.broadcast": Case(lambda: impl.comm.broadcast, tensor=_x, devices=[0, 1], out=None),
    "comm.broadcast into out": Case(lambda: impl.comm.broadcast, tensor=_x, out=_pair),
    "comm.broadcast_coalesced": Case(
        lambda: impl.comm.broadcast_coalesced,
        tensors=lambda: [_x(), _x()],
        devices=[0, 1],
        buffer_size=100,
    ),
    "comm.reduce_add": Case(lambda: impl.comm.reduce_add, inputs=_pair, destination=0),
    "comm.reduce_add_coalesced": Case(
        lambda: impl.comm.reduce_add_coalesced,
        inputs=lambda: [[_x(0)], [_x(1)]],
        destination=0,
        buffer_size=100,
    ),
    "comm.scatter": Case(
        lambda: impl.comm.scatter,
        tensor=_x,
        devices=[0, 1],
        chunk_sizes=[1, 3],
        dim=0,
        streams=None,
    ),
    "comm.scatter into out": Case(
        lambda: impl.comm.scatter, tensor=_x, dim=0, out=lambda: [_x(0, 2), _x(1, 2)]
    ),
    "comm.gather": Case(lambda: impl.comm.gather, tensors=_pair, dim=0, destination=0),
    "comm.gather into out": Case(
        lambda: impl.comm.gather, tensors=_pair, dim=0, out=lambda: _x(0, 8)
    ),
    "functions.Broadcast": Case(lambda: _apply("Broadcast"), target_gpus=[0, 1], input=_leaf),
    "functions.ReduceAddCoalesced": Case(
        lambda: _apply("ReduceAddCoalesced"),
        destination=0,
        num_inputs=1,
        first=_leaf,
        second=lambda: _leaf(1),
    ),
    "functions.Scatter": Case(
        lambda: _apply("Scatter"), target_gpus=[0, 1], chunk_sizes=[1, 3], dim=0, input=_leaf
    ),
    "functions.Gather": Case(
        lambda: _apply("Gather"), target_device=0, dim=0, first=_leaf, second=lambda: _leaf(1)
    ),
    "DataParallel.call": Case(
        lambda: lambda method, **inputs: _wrapper().call(method, **inputs), method="forward", x=_x
    ),
    "DataParallel.hold": Case(_hold, x=_x),
    "DataParallel.map": Case(
        _map,
        batches=lambda: [_x()],
        method="forward",
        in_flight=2,
        ordered=True,
        return_exceptions=False,
    ),
    "DataParallelWithLoss": Case(
        lambda: lambda **each: impl.DataParallelWithLoss(**each)(_x(), target=_target()),
        is_repeated=False,
        module=Net,
        criterion=nn.L1Loss,
        device_ids=[0, 1],
        output_device=0,
        dim=0,
        reduction="mean",
        mean_over="rows",
    ),
    "DataParallelWithLoss.forward": Case(
        lambda: impl.DataParallelWithLoss(Net(), nn.L1Loss(), [0, 1]), x=_x, target=_target
    ),
    "SyncBatchNorm.convert_sync_batchnorm": Case(
        lambda: impl.SyncBatchNorm.convert_sync_batchnorm,
        is_repeated=False,
        module=lambda: nn.Sequential(nn.BatchNorm1d(2)),
    ),
    "SyncBatchNorm.forward": Case(
        lambda: lambda **arguments: impl.SyncBatchNorm(3, dtype=torch.double)(**arguments),
        is_repeated=False,
        input=lambda: _x().cpu(),
    ),
    "parallel_apply in turn": Case(
        lambda: impl.parallel_apply, modules=_nets, inputs=_pair, in_turn=True
    ),
    "Whole": Case(lambda: lambda value: impl.scatter((_x(), impl.Whole(value)), [0, 1]), value=_x),
    "SplitAlong": Case(
        lambda: lambda **marked: impl.scatter((_x(), impl.SplitAlong(**marked)), [0, 1]),
        value=_x,
        dim=1,
    ),
    "install": Case(lambda: _install, is_repeated=False, rebind=False),
}


class RepeatedCall:
    """A public function with a wrapper that all calls use. Each call has new arguments.

    Args:
        name: A name of ``CASES``.
    """

    def __init__(self, name: str) -> None:
        self._create_arguments = CASES[name].arguments
        self._function = CASES[name].find()

    def compute(self) -> list[Tensor]:
        """Make the call. Return its results, and their gradients, which no leaf stores."""
        arguments = self._create_arguments()
        named = [arguments.get(name) for name in ("module", "network")]
        roots = [self._function, *named, *arguments.get("modules", ())]
        modules = [each for each in roots if isinstance(each, nn.Module)]
        parameters = [each for module in modules for each in module.parameters()]
        leaves = [*parameters, *(each for each in _tensors_in(arguments) if each.requires_grad)]
        outputs = _tensors_in(self._function(**arguments))
        with_grad = [output for output in outputs if output.requires_grad]
        grads: Sequence[Tensor | None] = ()
        if with_grad and leaves:
            ones = [*map(torch.ones_like, with_grad)]
            grads = torch.autograd.grad(with_grad, leaves, ones, allow_unused=True)
        return [each.detach().cpu() for each in (*outputs, *grads) if each is not None]


def _tensors_in(value: object) -> list[Tensor]:
    return [tensor for _, tensor in nested_values.tensors(value, "")]
