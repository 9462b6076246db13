"""impl._bucket_copies: the sums of gradients of copies and of replicas, and their time."""

import threading
import weakref

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from impl import replicate
from impl._bucket_copies import attached_copies
from spec_tests.checks.threads import call_in_thread
from spec_tests.strategies.tensor_subclasses import WARNINGS

#: Seconds to wait for a gradient; far more than a sum takes on a busy machine.
SECONDS = 10


def distinct(topology, count):
    topology.require(distinct=count)
    return list(dict.fromkeys(topology.devices))[:count]


@pytest.mark.parametrize("elements", [1, 1 << 19], ids=["packed", "unpacked"])
def test_gradient_sum_begins_with_the_source_device(topology, elements):
    # The gradients are 2**30, 1 and, on the source device, -(2**30). In float32 the sum is 1 if
    # the 1 is added last, and 0 in the order of the devices, because 2**30 + 1 rounds to 2**30.
    first, second, third = distinct(topology, 3)
    sources = [torch.ones(elements, device=third).requires_grad_() for _ in range(2)]
    rows = attached_copies(sources, [first, second, third])
    pairs = [
        (tensor, torch.full_like(tensor, weight))
        for row, weight in zip(rows, [2.0**30, 1.0, -(2.0**30)], strict=True)
        for tensor in row
    ]
    torch.autograd.backward(*zip(*pairs, strict=True))
    assert [source.grad.unique().tolist() for source in sources] == [[1.0], [1.0]]


@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("late", range(3))
def test_gradient_sum_of_a_wrapper_does_not_depend_on_time(topology, late):
    # A thread numbers its nodes from 0, and backward runs the nodes with the highest numbers
    # first. So the gradient of the copy ``late`` is ready last.
    device = topology.device(0)
    data, mask = torch.ones(2, device=device), torch.ones(2, dtype=torch.bool, device=device)
    source = torch.masked.masked_tensor(data, mask, requires_grad=True)
    rows = attached_copies([source], [device] * 3)
    outputs = [None] * 3

    def scale(index):
        outputs[index] = rows[index][0] * [-(2.0**30), 1.0, 2.0**30][index]

    for index in range(3):
        if index != late:
            scale(index)
    call_in_thread(scale, late)
    torch.autograd.backward([output.sum() for output in outputs])
    assert source.grad.get_data().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "change", [torch.Tensor.detach, lambda copy: copy.mul_(3)], ids=["unchanged", "changed"]
)
def test_gradients_of_a_bucket_are_summed_and_freed_before_backward_ends(topology, change):
    device = topology.device(0)
    early, late = (torch.tensor([1.0, 2.0], device=device).requires_grad_() for _ in range(2))
    rows = attached_copies([early, late], [device, device], buffer_size=1)
    with torch.no_grad():
        change(rows[0][1])
    grads, seen = [], []
    rows[1][1].register_hook(lambda grad: grads.append(weakref.ref(grad)))
    firsts = [row[0] * 2 for row in rows]
    # Backward calls this hook when all copies of ``late`` have their gradients, but the first copy
    # of ``early`` has none yet.
    firsts[0].register_hook(lambda grad: seen.append((late.grad is not None, grads[0]())))
    results = [first * 2 * 2 * row[1] for first, row in zip(firsts, rows, strict=True)]
    sum(results).sum().backward()
    assert seen == [(True, None)]


def make_network(device):
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5)
    return nn.Sequential(*layers).to(device)


def test_a_gradient_is_summed_while_a_replica_still_computes_earlier_layers(topology):
    devices = topology.take(2)
    network = make_network(devices[0])
    first, second = replicate(network, devices, buffer_size=1)
    summed, waited = threading.Event(), []
    network[-1].weight.register_post_accumulate_grad_hook(lambda _: summed.set())
    middle = second[:3](torch.randn(2, 2, 4, 4).to(devices[1]))
    # The backward of the second replica stops here. Autograd has one thread for each device.
    middle.register_hook(lambda _: waited.append(summed.wait(SECONDS)))
    loss = first(torch.randn(2, 2, 4, 4).to(devices[0])).square().sum().cpu()
    (loss + second[3:](middle).square().sum().cpu()).backward()
    assert waited == [True]


@pytest.mark.parametrize("slots", [(0,), (0, 1), (0, 0)], ids=str)
def test_parameters_of_a_wrapper_class_do_not_share_their_gradient(topology, slots):
    # Autograd passes one gradient to both copies of a device.
    device, pair = topology.device(0), []
    for _ in range(2):
        parts = (torch.zeros(2, device=device) for _ in range(2))
        pair.append(TwoTensor(*parts).requires_grad_())
    for count in (1, 2):
        rows = attached_copies(pair, topology.take(slots))
        sum(((one + other) * 2).to(device).sum() for one, other in rows).backward()
        for each in pair:
            assert each.grad.a.tolist() == [2.0 * len(slots) * count] * 2
