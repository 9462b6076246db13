"""Subclasses of Tensor, whose copies are plain tensors in the reference: SG-14."""

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.tensor_subclasses import Named

#: Name of a function of comm -> a function that returns its results for one tensor.
COPIES = {
    "scatter": lambda comm, tensor, devices: comm.scatter(tensor, devices),
    "broadcast": lambda comm, tensor, devices: comm.broadcast(tensor, devices),
    "broadcast_coalesced": lambda comm, tensor, devices: [
        copy for row in comm.broadcast_coalesced([tensor], devices) for copy in row
    ],
}


@clause("divergences.SG-14.copies-keep-the-class")
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_comm_have_the_class_of_their_tensor(target, topology, name):
    tensor = torch.ones(4, device=topology.device(0)).as_subclass(Named)
    topology.require(distinct=2)
    copies = COPIES[name](target.comm, tensor, topology.take(2))
    checks.same([type(copy) for copy in copies], [Named] * 2, name)
