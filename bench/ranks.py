"""Functions that ``bench_distributed`` and ``bench_models`` run in each rank's process."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

from impl import distributed

from .models import MODELS, ROWS
from .rank_pool import RankContext

#: For each library: this rank's wrapped module and its input. They are kept between calls.
_STATE: dict[str, tuple[nn.Module, Tensor]] = {}
#: For each variant: the call of a model's step. They are kept between calls.
_MODEL_STEPS: dict[str, Callable[[], float]] = {}

#: The number of the classifier's outputs. It is small, so that gradients are most of the traffic.
CLASSES = 16

#: For each collective that the libraries use: the position of its tensor argument.
_COLLECTIVES = {"all_reduce": 0, "broadcast": 0, "all_gather": 1}


def build_module_and_batch(
    context: RankContext,
    library: str,
    layers: int,
    width: int,
    rows_per_rank: int,
    bucket_cap_mb: float,
) -> None:
    """Build a wrapped module and a batch of ``rows_per_rank`` rows for each rank."""
    torch.manual_seed(0)
    module = nn.Sequential(
        *(_build_layer(width) for _ in range(layers)), nn.Linear(width, CLASSES)
    )
    x = torch.randn(rows_per_rank * context.size, width)
    options: dict[str, Any] = {"bucket_cap_mb": bucket_cap_mb}
    net: nn.Module
    if library == "impl":
        net = distributed.DataParallel(module, context.group, **options)
    else:
        options["find_unused_parameters"] = True  # impl always finds unused parameters.
        net = DistributedDataParallel(module, process_group=context.group, **options)
        net.register_comm_hook(context.group, allreduce_hook)
        x = x[context.rank * rows_per_rank :][:rows_per_rank]
    _STATE[library] = net, x


def run_step(context: RankContext, library: str) -> float:
    """Run forward and backward; return the sum of one gradient, to compare the ranks."""
    net, x = _STATE[library]
    net.zero_grad()
    net(x).square().mean().backward()
    first = next(net.parameters()).grad
    assert first is not None
    return float(first.sum())


def build_model_and_batch(
    context: RankContext, variant: str, name: str, mode: str, devices: Sequence[torch.device]
) -> None:
    """Build a wrapped model and its batch.

    Args:
        context: This rank.
        variant: ``impl.distributed``, on the CPU only, or ``DistributedDataParallel``.
        name: The model's key in ``bench.models.MODELS``.
        mode: ``training`` or ``evaluation``.
        devices: The device of each rank.
    """
    torch.manual_seed(0)
    model, device = MODELS[name], devices[context.rank]
    module = model.build().to(device).train(mode == "training")
    batch: Any = model.inputs(ROWS)
    net: nn.Module
    if variant == "impl.distributed":
        net = distributed.DataParallel(module, context.group)
    else:
        group = context.group if device.type == "cpu" else _group_on(device)
        net = DistributedDataParallel(module, process_group=group)
        rows = ROWS // context.size
        batch = tree_map_only(Tensor, lambda x: x[context.rank * rows :][:rows].to(device), batch)
    step = partial(run_model, net, batch, model.loss)
    _MODEL_STEPS[variant] = step if mode == "training" else torch.no_grad()(step)


def _group_on(device: torch.device) -> Any:
    """Return a group of all ranks that sends tensors from device to device, as by NCCL."""
    torch.accelerator.set_device_index(device)
    return dist.new_group(backend=dist.get_default_backend_for_device(device))


def run_model_step(context: RankContext, variant: str) -> float:
    """Run a step of the model; return the loss."""
    return _MODEL_STEPS[variant]()


def run_model(net: nn.Module, inputs: Any, compute_loss: Callable[[Any], Tensor]) -> float:
    """Run forward, and backward if gradients are recorded; return the loss."""
    net.zero_grad()
    loss = compute_loss(net(**inputs) if isinstance(inputs, dict) else net(*inputs))
    if loss.requires_grad:
        torch.autograd.backward(loss)
    return loss.item()


def count_bytes_sent(context: RankContext, library: str) -> dict[str, int]:
    """Return for each collective the bytes that this rank passes to it in one step."""
    byte_counts: Counter[str] = Counter()
    originals = {name: getattr(dist, name) for name in _COLLECTIVES}
    for name, index in _COLLECTIVES.items():
        setattr(dist, name, _counting_bytes(originals[name], name, index, byte_counts))
    try:
        run_step(context, library)
    finally:
        for name, function in originals.items():
            setattr(dist, name, function)
    return dict(byte_counts)


def _counting_bytes(
    function: Callable[..., Any], name: str, index: int, byte_counts: Counter[str]
) -> Callable[..., Any]:
    """Return a function that counts the bytes of its argument ``index`` and calls ``function``."""

    def count_and_call(*args: Any, **kwargs: Any) -> Any:
        tensor: Tensor = args[index]
        byte_counts[name] += tensor.numel() * tensor.element_size()
        return function(*args, **kwargs)

    return count_and_call


def _build_layer(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())
