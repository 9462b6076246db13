"""impl.data_parallel: what each step is given, and what comes of it."""

import sys
import weakref

import pytest
import torch
from torch import nn

from impl import DataParallel, Whole, data_parallel
from impl._replica.cache import find_replica_cache
from impl.data_parallel import _moved


class Echo(nn.Module):
    """Gives back what it is called with."""

    def forward(self, *inputs, **kwargs):
        return inputs, kwargs


def distinct(topology, count):
    topology.require(distinct=count)
    return list(dict.fromkeys(topology.devices))[:count]


def test_the_steps_split_and_join_along_the_dimension(topology):
    devices = topology.take(2)
    network = DataParallel(Echo(), devices, dim=1)
    x = torch.arange(6.0).reshape(1, 6).to(devices[0])
    args, kwargs = network.scatter((x,), {"y": x}, devices)
    assert [tuple(each[0].shape) for each in args] == [(1, 3), (1, 3)]
    assert [tuple(each["y"].shape) for each in kwargs] == [(1, 3), (1, 3)]
    joined = network.gather([each[0] for each in args], devices[0])
    assert joined.tolist() == x.tolist()


def test_the_steps_split_by_the_sizes(topology):
    devices = topology.take(2)
    network = DataParallel(Echo(), devices, chunk_sizes=[1, 3])
    args, _ = network.scatter((torch.ones(4),), None, devices)
    assert [len(each[0]) for each in args] == [1, 3]


def test_the_function_splits_and_joins_along_the_dimension(topology):
    devices = topology.take(2)
    x = torch.arange(6.0).reshape(1, 6).to(devices[0])
    (found,), _ = data_parallel(Echo(), (x,), devices, dim=1)
    assert found.tolist() == x.tolist()


def test_a_step_may_give_no_keyword_arguments(topology):
    class Own(DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            return super().scatter(inputs, kwargs, device_ids)[0], None

    (found,), named = Own(Echo(), topology.take(2))(torch.arange(4))
    assert (found.tolist(), named) == ([0, 1, 2, 3], {})


@pytest.mark.parametrize("count", [1, 2])
def test_without_arguments_one_replica_runs(topology, count):
    assert DataParallel(Echo(), topology.take(count))() == ((), {})
    assert data_parallel(Echo(), None, topology.take(count)) == ((), {})


def test_a_module_that_is_only_called_sees_no_marks(monkeypatch):
    # The package's function has the module's name.
    home = sys.modules["impl.data_parallel"]
    monkeypatch.setattr(home, "choose_devices", lambda *_: None)
    x = torch.ones(2)
    (found,), named = DataParallel(Echo())(Whole(x), y=Whole(x))
    assert found is x
    assert named["y"] is x


def test_outputs_that_stay_are_the_objects_of_the_module(topology):
    device = topology.device(0)
    output = [torch.ones(2, device=device), torch.ones(2)]
    assert _moved(output, device, device.index) is output


def test_outputs_of_the_device_are_moved_and_others_stay(topology):
    first, second = distinct(topology, 2)
    there, elsewhere = torch.ones(2, device=first), torch.ones(2)
    moved = _moved([there, elsewhere], first, second.index)
    assert moved[0].device == second
    assert moved[1] is elsewhere


@pytest.mark.parametrize("count", [1, 2, 3])
def test_several_devices_have_replicas_to_hold(topology, count):
    network = DataParallel(Echo(), topology.take(count))
    with network.hold():
        assert (find_replica_cache(network) is not None) == (count > 1)
    assert find_replica_cache(network) is None


def test_what_is_not_asked_for_is_no_attribute(topology):
    devices = topology.take(2)
    assert "in_turn" not in vars(DataParallel(Echo(), devices))
    assert vars(DataParallel(Echo(), devices, in_turn=True))["in_turn"] is True


class Doubling(nn.Module):
    """Notes what it is called with, weakly."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def forward(self, x):
        self.seen.append(weakref.ref(x))
        return 2 * x


def test_the_chunks_are_gone_when_the_class_joins_outputs(topology):
    seen, alive = [], []

    class Own(DataParallel):
        def gather(self, outputs, output_device):
            alive.extend(chunk() is not None for chunk in seen)
            return super().gather(outputs, output_device)

    with torch.no_grad():
        Own(Doubling(seen), topology.take(2))(torch.ones(4))
    assert alive == [False, False]
