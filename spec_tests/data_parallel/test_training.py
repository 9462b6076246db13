"""DataParallel: training of a small network on images of noise, and a step of a Trainer.

Expected results:

* on one device: the plain network, bit for bit;
* on several devices with batch statistics: the naive wrapper, because each replica normalises by
  the statistics of its chunk and only the first chunk changes the running statistics. The results
  also equal those of torch.nn.parallel on as many devices;
* on several devices with fixed statistics: the plain network.

With batch statistics the devices must differ: on a repeated device the second replica of
torch.nn.parallel changes the running statistics, too (divergence CO-4).

The Trainer of transformers passes all arguments by keyword. One of them is a tensor with one
number per device.
"""

import functools

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import clause
from spec_tests.oracle import naive
from spec_tests.strategies.layers import seeded
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.supported_layers import computed

STEPS = 15
#: Rows of a batch. With three or four devices the chunks have unequal sizes.
ROWS = 50
#: Tolerance of the steps in float32. The gradients of a step are sums of a few hundred terms. The
#: order of addition depends on the chunks, so the sums differ by about 2**-24 of their size;
#: momentum and later steps magnify the difference.
TOLERANCE = 1e-4


def make_network():
    """Return two convolutions with batch normalisation and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(8 * 4 * 4, 10)),
    )


def train(wrap, device, *, batch_statistics=True):
    """Train ``wrap(network)``. Return losses, parameters and buffers by name.

    The test is not-run if the devices do not compute the layers as the CPU does.
    """
    computed(["convolution"])
    computed(["batch_norm"])
    net = seeded(make_network).to(device).train(batch_statistics)
    model = wrap(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    generator, losses = torch.Generator().manual_seed(0), []
    # Algorithms that cuDNN chooses by timing differ between runs; TF32 rounds too coarsely.
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False, allow_tf32=False):
        for step in range(STEPS):
            images = torch.rand(ROWS, 1, 8, 8, generator=generator)
            labels = torch.arange(step, step + ROWS) % 10
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return snapshot({"losses": torch.stack(losses), **net.state_dict()}, {})


def train_wrapped(target, devices, **options):
    wrap = functools.partial(target.data_parallel.DataParallel, device_ids=devices)
    return train(wrap, devices[0], **options)


@clause("data_parallel.training.one-device")
def test_training_on_one_device_equals_the_plain_network(target, topology):
    devices = topology.take(1)
    checks.same(train_wrapped(target, devices), train(lambda net: net, devices[0]))


@clause("data_parallel.training.same-as-the-reference")
@pytest.mark.parametrize("count", [1, 4], ids="devices={}".format)
def test_training_on_any_number_of_devices_equals_the_reference(
    target, baselines, topology, count
):
    topology.require(distinct=count)
    devices = topology.take(count)
    found = train_wrapped(target, devices)
    for baseline in baselines:
        checks.same(found, train_wrapped(baseline, devices), tolerance=TOLERANCE)


@clause("data_parallel.training.chunk-by-chunk")
def test_training_on_several_devices_equals_the_network_chunk_by_chunk(target, topology):
    topology.require(distinct=3)
    devices = topology.take(3)
    expected = train(lambda net: naive.DataParallel(net, devices, devices[0], 0), devices[0])
    checks.same(train_wrapped(target, devices), expected, tolerance=TOLERANCE)


@clause("data_parallel.training.fixed-statistics")
def test_training_with_fixed_statistics_equals_the_plain_network(target, topology):
    devices = topology.take(3)
    expected = train(lambda net: net, devices[0], batch_statistics=False)
    found = train_wrapped(target, devices, batch_statistics=False)
    checks.same(found, expected, tolerance=TOLERANCE)


#: Pairs: the number of devices, the number of rows in the batch.
SIZES = [(count, rows) for count in (2, 3, 4) for rows in range(1, 2 * count + 1)]


def compute_loss(module, input_ids, labels, num_items_in_batch):
    """Divide the loss of a chunk by the number of items in the whole batch."""
    errors = (module.layer(input_ids) - labels).square()
    return {"loss": errors.sum() / num_items_in_batch.sum(), "logits": errors}


def training_step(target, topology, count, rows):
    """Return the loss, outputs and gradients of one step."""
    torch.manual_seed(0)
    devices = topology.take(count)
    module = Calls(compute_loss, layer=nn.Linear(3, 2)).to(devices[0])
    batch = {
        "input_ids": torch.arange(3.0 * rows).reshape(rows, 3).to(devices[0]),
        "labels": torch.ones(rows, 2, device=devices[0]),
        "num_items_in_batch": torch.full((count, 1), rows, device=devices[0]),
    }
    output = target.data_parallel.DataParallel(module, devices)(**batch)
    output["loss"].sum().backward()
    found = [*output.values(), *(parameter.grad for parameter in module.parameters())]
    return snapshot(found, {}, strides=False)


@clause("data_parallel.per-device-argument")
@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize(("count", "rows"), SIZES)
def test_a_trainer_step_equals_that_of_the_reference_for_any_batch_size(
    target, baselines, topology, count, rows
):
    found = training_step(target, topology, count, rows)
    for baseline in baselines:
        expected = training_step(baseline, topology, count, rows)
        checks.same(found, expected, (count, rows), tolerance=checks.LAYER)
