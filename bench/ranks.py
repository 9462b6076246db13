"""Functions that ``bench_distributed`` runs in each rank's process."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from spec_tests.distributed.pool import RankContext

#: This rank's wrapped module, batch and parameters. They are kept between calls.
_STATE: dict[str, Any] = {}

#: The number of the classifier's outputs. It is small, so that gradients are most of the traffic.
CLASSES = 16

#: Collective that the libraries use -> the position of its tensor argument.
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
    if library == "impl":
        net = context.distributed.DataParallel(module, context.group, **options)
    else:
        options["find_unused_parameters"] = True  # impl always finds unused parameters.
        net = DistributedDataParallel(module, process_group=context.group, **options)
        net.register_comm_hook(context.group, allreduce_hook)
        x = x[context.rank * rows_per_rank :][:rows_per_rank]
    _STATE.update(net=net, x=x, parameters=list(module.parameters()))


def run_step(context: RankContext) -> float:
    """Run forward and backward; return the sum of one gradient, to compare the ranks."""
    for parameter in _STATE["parameters"]:
        parameter.grad = None
    _STATE["net"](_STATE["x"]).square().mean().backward()
    return float(_STATE["parameters"][0].grad.sum())


def count_bytes_sent(context: RankContext) -> dict[str, int]:
    """Return for each collective the bytes that this rank passes to it in one step."""
    byte_counts: Counter[str] = Counter()
    originals = {name: getattr(dist, name) for name in _COLLECTIVES}
    for name, index in _COLLECTIVES.items():
        setattr(dist, name, _counting_bytes(originals[name], name, index, byte_counts))
    try:
        run_step(context)
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
