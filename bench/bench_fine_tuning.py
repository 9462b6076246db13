"""Fine-tuning, gradient accumulation, and evaluation of uneven batches, for three models.

Variants are called in turn: torch.nn.parallel, impl, and impl with `cache_frozen_parameters`
("cached"), with `hold` ("held") or with `map`. Another target takes the place of impl, without the
variants. In the rows called "frozen" all parameters but the last two are frozen, in the rows
called "adapters" all but those of an adapter at each layer norm. In the rows called "delays"
a module only waits, 4 ms for each row, and twice as long on a slow device.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from spec_tests.machine.devices import not_run

from .models import MODELS, ROWS
from .modules import Adapter, Delay

pytest.importorskip("transformers", reason="the models need the dependency group `consumers`")
pytestmark = pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
DEVICES = 4
NAMES = ["ResNet-18", "ViT", "GPT-2"]
#: The rows of each batch whose gradients are accumulated.
ACCUMULATED = [8, 8, 8, 8]
#: The rows of each batch of an evaluation.
EVEN, UNEVEN = [8] * 16, [16, 4, 12, 8, 16, 4, 8, 12]


def freeze_backbone(module):
    for parameter in [*module.parameters()][:-2]:
        parameter.requires_grad_(False)


def insert_adapters(module):
    module.requires_grad_(False)
    for parent in [*module.modules()]:
        for name, child in parent.named_children():
            if isinstance(child, nn.LayerNorm):
                setattr(parent, name, Adapter(child))


@pytest.mark.parametrize("prepare", [freeze_backbone, insert_adapters], ids=["frozen", "adapters"])
@pytest.mark.parametrize("name", NAMES)
def bench_fine_tuning(time_alternately, libraries, benchmark, topology, name, prepare):
    if (name, prepare) == ("ResNet-18", insert_adapters):
        not_run("has no layer norms")
    benchmark.group = f"{name} {'frozen' if prepare is freeze_backbone else 'adapters'}"
    module, batches = build(topology, name, [ROWS], prepare)
    wrappers = wrap(topology, libraries, module, cached={"cache_frozen_parameters": True})
    time_alternately(compare_losses(MODELS[name].loss, wrappers, batches))


@pytest.mark.parametrize("name", NAMES)
def bench_accumulation(time_alternately, libraries, benchmark, topology, name):
    benchmark.group = f"{name} accumulation"
    module, batches = build(topology, name, ACCUMULATED)
    time_alternately(compare_losses(MODELS[name].loss, wrap(topology, libraries, module), batches))


@pytest.mark.usefixtures("impl_only")
@pytest.mark.parametrize("name", NAMES)
def bench_uneven_batches(time_alternately, libraries, benchmark, topology, name):
    benchmark.group = f"{name} evaluation of uneven batches"
    module, batches = build(topology, name, UNEVEN, nn.Module.eval)
    time_evaluation(
        time_alternately,
        wrap(topology, libraries, module, held={}, map={}),
        batches,
        MODELS[name].loss,
    )


@pytest.mark.usefixtures("impl_only")
@pytest.mark.parametrize("rows", [EVEN, UNEVEN * 2], ids=["even", "uneven"])
@pytest.mark.parametrize("slow", [False, True], ids="slow-device={}".format)
def bench_delays(time_alternately, libraries, benchmark, topology, rows, slow):
    kind = "even" if rows is EVEN else "uneven"
    benchmark.group = f"delays {kind} batches{' with a slow device' * slow}"
    first, *_, last = topology.take(DEVICES)
    module = Delay(last if slow else None).to(first)
    batches = [(torch.ones(each, 1, device=first),) for each in rows]
    time_evaluation(
        time_alternately, wrap(topology, libraries, module, held={}, map={}), batches, torch.sum
    )


def time_evaluation(time_alternately, wrappers, batches, compute_loss):
    mapped = wrappers.pop("impl map")
    with torch.no_grad(), wrappers["impl held"].hold(), mapped.hold():
        calls = compare_losses(compute_loss, wrappers, batches)
        calls["impl map"] = lambda: sum(compute_loss(each).item() for each in mapped.map(batches))
        assert calls["impl map"]() == pytest.approx(calls["impl held"](), rel=1e-3)
        time_alternately(calls)


def build(topology, name, rows, prepare=lambda module: None):
    """Return the module ``name``, and an input for each number of ``rows``, on one device."""
    (device,) = topology.take(1)
    torch.manual_seed(0)
    module = MODELS[name].build()
    prepare(module)
    batches = [MODELS[name].inputs(each) for each in rows]
    return module.to(device), tree_map_only(torch.Tensor, lambda x: x.to(device), batches)


def wrap(topology, libraries, module, **variants):
    """Return a wrapper of ``module`` for each library, and for each variant of impl."""
    devices = topology.take(DEVICES)
    wrappers = {
        library: target.data_parallel.DataParallel(module, devices)
        for library, target in libraries.items()
    }
    if "impl" in libraries:
        wrapped_by_impl = partial(libraries["impl"].data_parallel.DataParallel, module, devices)
        wrappers |= {f"impl {name}": wrapped_by_impl(**each) for name, each in variants.items()}
    return wrappers


def compare_losses(compute_loss, wrappers, batches):
    """Return, for each wrapper, a call that runs all ``batches``. All calls return one loss."""
    calls = {
        library: partial(run, wrapper, batches, compute_loss)
        for library, wrapper in wrappers.items()
    }
    losses = [call() for call in calls.values()]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-3)
    return calls


def run(net, batches, compute_loss):
    """Run a forward of each batch, and a backward if gradients are recorded."""
    net.zero_grad()
    total = 0.0
    for batch in batches:
        loss = compute_loss(net(**batch) if isinstance(batch, dict) else net(*batch))
        if loss.requires_grad:
            loss.backward()
        total += loss.item()
    return total
