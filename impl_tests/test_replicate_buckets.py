"""The argument ``buffer_size`` of `impl.replicate`, with one bucket for each parameter."""

import threading

import torch
from torch import nn

from impl import gather, parallel_apply, replicate, scatter

#: Seconds to wait for a gradient; far more than a sum takes on a busy machine.
SECONDS = 10


def make_network(device):
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5)
    return nn.Sequential(*layers).to(device)


def compute_gradients(topology, **options):
    devices = topology.take(3)
    network = make_network(devices[0])
    batch = torch.linspace(-1, 1, 160).reshape(5, 2, 4, 4).to(devices[0])
    replicas = replicate(network, devices, **options)
    outputs = parallel_apply(replicas, scatter(batch, devices), devices=devices)
    gather(outputs, devices[0]).square().sum().backward()
    return [parameter.grad for parameter in network.parameters()]


def test_one_bucket_for_each_parameter_gives_the_same_gradients(topology):
    torch.testing.assert_close(
        compute_gradients(topology, buffer_size=1), compute_gradients(topology)
    )


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
