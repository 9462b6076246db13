"""impl.replicate: modules with replication methods of their own."""

import copy

from torch import Tensor, nn

from impl import replicate


class Forgetful(nn.Module):
    """A module that keeps no attribute ``_former_parameters``."""

    def __setattr__(self, name, value):
        if name != "_former_parameters":
            super().__setattr__(name, value)


def test_a_replica_may_refuse_the_dictionary_of_former_parameters(topology):
    module = Forgetful().to(topology.device(0))
    replicas = replicate(module, topology.take(2))
    assert [type(replica) for replica in replicas] == [Forgetful] * 2


class ShallowCopied(nn.Linear):
    """A module whose replicas are shallow copies, which share its dictionary of parameters."""

    def _replicate_for_data_parallel(self):
        return copy.copy(self)


def test_a_replica_may_be_a_shallow_copy_of_its_module(topology):
    module = ShallowCopied(2, 1).to(topology.device(0))
    replicas = replicate(module, topology.take(2))
    assert [type(replica.weight) for replica in replicas] == [Tensor] * 2
    assert [*module._parameters] == ["weight", "bias"]
