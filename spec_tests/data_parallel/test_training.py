"""DataParallel: fifteen training steps on handwritten digits.

Expected results:

* on one device: the plain network, bit for bit;
* on several devices with batch statistics: the plain network applied chunk by chunk, because each
  replica normalises by the statistics of its chunk. Only the first chunk changes the running
  statistics. The results also equal those of torch.nn.parallel on as many devices;
* on several devices with fixed statistics: the plain network.

With batch statistics the devices must differ: on a repeated device the second replica of
torch.nn.parallel changes the running statistics, too (divergence CO-4).
"""

import functools

from spec_tests.data_parallel.digits import ChunkByChunk, Training
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause

#: Tolerance of fifteen steps in float32. The gradients of a step are sums of a few hundred terms.
#: The order of addition depends on the chunks, so the sums differ by about 2**-24 of their size;
#: momentum and later steps magnify the difference. Measured on the simulator: below 2e-7. With
#: the statistics of a wrong chunk the difference is 8e-2.
TOLERANCE = 1e-4

# The lives of wrappers (`test_life`) have all numbers of devices.
COUNT = 3


@functools.cache
def train_plain(training):
    return training.run(lambda net: net)


def train_wrapped(target, topology, count, training):
    devices = topology.take(count)
    return training.run(lambda net: target.data_parallel.DataParallel(net, devices))


@clause("data_parallel.training.one-device")
def test_training_on_one_device_equals_the_plain_network(target, topology):
    training = Training(topology.device(0))
    checks.same(train_wrapped(target, topology, 1, training), train_plain(training))


@clause("data_parallel.training.same-as-the-reference")
def test_training_on_any_number_of_devices_equals_the_reference(target, baselines, topology):
    topology.require(distinct=4)
    training = Training(topology.device(0))
    found = train_wrapped(target, topology, 4, training)
    for baseline in baselines:
        checks.same(found, train_wrapped(baseline, topology, 4, training), tolerance=TOLERANCE)


@clause("data_parallel.training.chunk-by-chunk")
def test_training_on_several_devices_equals_the_network_chunk_by_chunk(target, topology):
    topology.require(distinct=COUNT)
    training = Training(topology.device(0))
    expected = training.run(lambda net: ChunkByChunk(net, COUNT))
    checks.same(train_wrapped(target, topology, COUNT, training), expected, tolerance=TOLERANCE)


@clause("data_parallel.training.fixed-statistics")
def test_training_with_fixed_statistics_equals_the_plain_network(target, topology):
    training = Training(topology.device(0), batch_statistics=False)
    expected = train_plain(training)
    checks.same(train_wrapped(target, topology, COUNT, training), expected, tolerance=TOLERANCE)
