"""Training steps in the processes of ``bench_distributed``, and the bytes that they send."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from spec_tests.distributed.pool import RankContext

#: The module, batch and parameters of this rank, kept between calls.
_STATE: dict[str, Any] = {}

#: The number of outputs; the output is small compared with the gradients.
CLASSES = 16

#: The collectives that the libraries use, each with the position of the tensor argument.
_COLLECTIVES = {"all_reduce": 0, "broadcast": 0, "all_gather": 1}


def prepare(
    rank: RankContext, library: str, layers: int, width: int, rows: int, cap_mb: float
) -> None:
    """Build a module and a batch of ``rows`` rows per rank."""
    torch.manual_seed(0)
    module = nn.Sequential(*(_layer(width) for _ in range(layers)), nn.Linear(width, CLASSES))
    x = torch.randn(rows * rank.size, width)
    options: dict[str, Any] = {"bucket_cap_mb": cap_mb}
    if library == "impl":
        net = rank.distributed.DataParallel(module, rank.group, **options)
    else:
        options["find_unused_parameters"] = True  # impl does the same.
        net = DistributedDataParallel(module, process_group=rank.group, **options)
        net.register_comm_hook(rank.group, allreduce_hook)
        x = x[rank.rank * rows :][:rows]
    _STATE.update(net=net, x=x, parameters=list(module.parameters()))


def step(rank: RankContext) -> float:
    """Run forward and backward; return the sum of a gradient."""
    for parameter in _STATE["parameters"]:
        parameter.grad = None
    _STATE["net"](_STATE["x"]).square().mean().backward()
    return float(_STATE["parameters"][0].grad.sum())


def count_bytes_sent(rank: RankContext) -> dict[str, int]:
    """Return the bytes that one step passes to each collective on this rank."""
    counts: Counter[str] = Counter()
    originals = {name: getattr(dist, name) for name in _COLLECTIVES}
    for name, index in _COLLECTIVES.items():
        setattr(dist, name, _count_bytes(originals[name], name, index, counts))
    try:
        step(rank)
    finally:
        for name, function in originals.items():
            setattr(dist, name, function)
    return dict(counts)


def _count_bytes(
    function: Callable[..., Any], name: str, index: int, counts: Counter[str]
) -> Callable[..., Any]:
    def count(*args: Any, **kwargs: Any) -> Any:
        tensor: Tensor = args[index]
        counts[name] += tensor.numel() * tensor.element_size()
        return function(*args, **kwargs)

    return count


def _layer(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())
