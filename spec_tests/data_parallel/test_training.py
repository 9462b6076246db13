"""DataParallel in a real training run: thirty steps on handwritten digits.

What equals what:

* on one device: the plain network, bit for bit;
* on several devices, where batch normalisation takes its statistics from the batch: not the plain
  network, because each replica normalises by the statistics of its chunk. It equals the plain
  network applied chunk by chunk, the first chunk alone changing the running statistics; and
  torch.nn.parallel.DataParallel on as many devices;
* on several devices with fixed statistics: the plain network.

Where statistics are taken devices must differ: on one that is given twice torch.nn.parallel lets
the second replica change the running statistics, too (divergence CO-4).
"""

import functools

import pytest

from spec_tests.data_parallel.digits import ChunkByChunk, Training
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause

#: Thirty steps of float32. The gradients of a step, sums of a few hundred terms, are added in an
#: order that depends on the cut of the batch, and differ by some 2**-24 of their size; momentum
#: and the steps that follow magnify that. Measured on the simulator: below 2e-7, where a network
#: whose statistics are those of another cut differs by 8e-2.
TRAINING = 1e-4

several_devices = pytest.mark.parametrize("count", [2, 3, 4], ids="devices={}".format)


@functools.cache
def trained_plainly(training):
    return training.run(lambda net: net)


def trained(target, topology, count, training):
    devices = topology.take(count)
    return training.run(lambda net: target.data_parallel.DataParallel(net, devices))


@clause("data_parallel.training.one-device")
def test_one_device_trains_as_the_plain_network(target, topology):
    training = Training(topology.device(0))
    checks.same(trained(target, topology, 1, training), trained_plainly(training))


@clause("data_parallel.training.same-as-the-reference")
@pytest.mark.parametrize("count", [1, 2, 3, 4], ids="devices={}".format)
def test_any_number_of_devices_trains_as_the_reference(target, answers, topology, count):
    topology.require(distinct=count)
    training = Training(topology.device(0))
    found = trained(target, topology, count, training)
    for answer in answers:
        checks.same(found, trained(answer, topology, count, training), tolerance=TRAINING)


@clause("data_parallel.training.chunk-by-chunk")
@several_devices
def test_several_devices_train_as_the_network_chunk_by_chunk(target, topology, count):
    topology.require(distinct=count)
    training = Training(topology.device(0))
    expected = training.run(lambda net: ChunkByChunk(net, count))
    checks.same(trained(target, topology, count, training), expected, tolerance=TRAINING)


@clause("data_parallel.training.fixed-statistics")
@several_devices
def test_with_fixed_statistics_several_devices_train_as_one(target, topology, count):
    training = Training(topology.device(0), statistics=False)
    expected = trained_plainly(training)
    checks.same(trained(target, topology, count, training), expected, tolerance=TRAINING)
