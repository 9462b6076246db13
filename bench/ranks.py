"""Functions that ``bench_models`` runs in each rank's process."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

from impl import distributed

from .models import MODELS, ROWS
from .rank_pool import RankContext

#: For each variant: the call of a model's step. They are kept between calls.
_MODEL_STEPS: dict[str, Callable[[], float]] = {}


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
