"""Cases, as in ``cases.py``, of the functions and options that torch.nn.parallel lacks."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import impl
from spec_tests.harness.environment.target import Target

from .cases import Case, call_replicate, net, pair, x

__all__ = ["CASES_OF_IMPL"]


def _call_in_hold(target: Target, **inputs: Any) -> Any:
    wrapper = target.data_parallel.DataParallel(net(), [0, 1])
    with torch.no_grad(), wrapper.hold():
        return [wrapper(**inputs), wrapper(**inputs)]


def _map(target: Target, **arguments: Any) -> Any:
    wrapper = target.data_parallel.DataParallel(net(), [0, 1])
    with torch.no_grad():
        return [*wrapper.map(**arguments)]


def _install(target: Target, **options: Any) -> Any:
    with impl.installed(**options):
        return nn.DataParallel(net(), [0, 1])(x())


def _on_one_rank() -> ModuleType:
    """Return impl.distributed in a process group of this process alone."""
    if not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined] # public, but not exported
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    return importlib.import_module("impl.distributed")


def _construct_on_one_rank(target: Target, **arguments: Any) -> Any:
    return _on_one_rank().DataParallel(**arguments)(x().cpu())


def _options(**arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {
        name: list(value) if isinstance(value, list) else value
        for name, value in arguments.items()
    }


#: Name of a function or of a group of options -> its case.
CASES_OF_IMPL: dict[str, Case] = {
    "DataParallel with options": Case(
        lambda target, **options: target.data_parallel.DataParallel(net(), [0, 1], **options)(x()),
        _options(
            chunk_sizes=[1, 3],
            in_turn=True,
            scalar_warning=False,
            module_attributes=True,
            cache_frozen_parameters=True,
        ),
    ),
    "DataParallel.hold": Case(_call_in_hold, lambda: {"input": x()}),
    "DataParallel.map": Case(_map, lambda: {"batches": [x()], "in_flight": 2, "ordered": True}),
    "DataParallelWithLoss": Case(
        lambda target, **arguments: impl.DataParallelWithLoss(**arguments)(x(), target=x()[:, :2]),
        lambda: {
            "module": net(),
            "criterion": nn.L1Loss(),
            "device_ids": [0, 1],
            "output_device": 0,
            "dim": 0,
            "reduction": "mean",
        },
        # The module of a replica has the criterion as a submodule.
        {"criterion": "criterion|module"},
    ),
    "DataParallelWithLoss.forward": Case(
        lambda _, /, **arguments: impl.DataParallelWithLoss(net(), nn.L1Loss(), [0, 1])(
            x(), **arguments
        ),
        lambda: {"target": x()[:, :2]},
        {"target": "target|args|kwargs|tensors?"},
    ),
    "SyncBatchNorm.convert_sync_batchnorm": Case(
        lambda target, module: impl.SyncBatchNorm.convert_sync_batchnorm(module),
        lambda: {"module": nn.Sequential(nn.BatchNorm1d(2))},
    ),
    "SyncBatchNorm.forward": Case(
        lambda target, **arguments: impl.SyncBatchNorm(3, dtype=torch.double)(**arguments),
        lambda: {"input": x().cpu()},
        # Outside of a replica the errors are those of PyTorch's batch norm.
        {"input": "input|[Tt]ensors?|parameter|running_mean|batch_norm|NestedTensorImpl|dim"},
    ),
    "parallel_apply with options": Case(
        lambda target, **options: target.parallel_apply.parallel_apply(
            [nn.Identity(), nn.Identity()], pair(), **options
        ),
        _options(in_turn=True),
    ),
    "gather with options": Case(
        lambda target, **options: target.scatter_gather.gather(pair(), 0, **options),
        _options(scalar_warning=False),
    ),
    "replicate with options": Case(
        lambda target, **options: call_replicate(
            target, network=net(), devices=[0, 1], detach=False, **options
        ),
        _options(buffer_size=100, with_parameters=True),
    ),
    "scatter with options": Case(
        lambda target, **options: target.scatter_gather.scatter((x(),), [0, 1], **options),
        _options(chunk_sizes=[1, 3]),
    ),
    "scatter_kwargs with options": Case(
        lambda target, **options: target.scatter_gather.scatter_kwargs(
            (x(),), {}, [0, 1], **options
        ),
        _options(chunk_sizes=[1, 3]),
    ),
    "Whole": Case(
        lambda target, value: target.scatter_gather.scatter((x(), impl.Whole(value)), [0, 1]),
        lambda: {"value": x()},
        {"value": "inputs|tensors?"},
    ),
    "SplitAlong": Case(
        lambda target, **arguments: target.scatter_gather.scatter(
            (x(), impl.SplitAlong(**arguments)), [0, 1]
        ),
        lambda: {"value": x(), "dim": 1},
        {"value": "inputs|tensors?"},
    ),
    "install": Case(_install, _options(rebind=False)),
    "distributed.DataParallel": Case(
        _construct_on_one_rank,
        lambda: {
            "module": net().cpu(),
            "process_group": None,
            "device": "cpu",
            "dim": 0,
            "chunk_sizes": [1],
            "source": 0,
            "gather_output": True,
            "check_inputs": True,
        },
        {"module": "module|parameter"},
    ),
    "distributed.data_parallel": Case(
        lambda target, **arguments: _on_one_rank().data_parallel(**arguments),
        lambda: {
            "module": net().cpu(),
            "inputs": (),
            "process_group": None,
            "device": "cpu",
            "dim": 0,
            "module_kwargs": {"input": x().cpu()},
        },
        {"module": "module|parameter", "module_kwargs": "module_kwargs|keywords|input|self"},
    ),
    "distributed.DataParallel.part": Case(
        lambda target, value: _on_one_rank().DataParallel(net().cpu()).part(value),
        lambda: {"value": x().cpu()},
        {"value": "value|args"},
    ),
    "distributed.DataParallel.mean": Case(
        lambda target, losses: _on_one_rank().DataParallel(net().cpu()).mean(losses),
        lambda: {"losses": x().cpu()},
    ),
}
