"""impl.replicate: modules with replication methods of their own."""

from torch import nn

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
