"""replicate: the order of copies and the caller's queued work."""

import torch
from torch import nn

from spec_tests import checks
from spec_tests.checks.side_streams import on_side_streams
from spec_tests.machine.clauses import clause


class Module(nn.Module):
    """A module with a buffer and two parameters. The parameters are broadcast together."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.offset = nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.ones(2))


@clause("replicate.queue-order")
def test_a_module_may_be_changed_after_replicate(target, topology):
    topology.require(distinct=2)
    devices = [*dict.fromkeys(topology.take(3))]  # A copy for a repeated device may be shared.
    net = Module().to(devices[0])
    with on_side_streams(topology):
        for tensor in (net.scale.data, net.offset.data, net.shift):
            tensor.mul_(2)
        replicas = target.replicate.replicate(net, devices)[1:]
        for tensor in (net.scale.data, net.offset.data, net.shift):
            tensor.zero_()
        # The replicas are freed after the work that reads them is queued, and before it runs.
        found = [
            replica.scale.detach() + replica.offset.detach() + replica.shift
            for replica in replicas
        ]
        del replicas
    checks.same(torch.stack([total.cpu() for total in found]), torch.full((len(found), 2), 6.0))
