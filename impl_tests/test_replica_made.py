"""impl._replica: replicas that a module's own hook makes, and what counts as a parameter."""

import collections

import torch
from torch import nn

from impl import _replica
from impl.replicate import replicate

CPUS = ["cpu", "cpu"]
OWN = collections.OrderedDict()


class Own(torch.Tensor):
    """A class of tensors that are no parameters."""


class Reshaping(nn.Linear):
    """Its replicas share one dictionary of hooks, and lack another one."""

    def _replicate_for_data_parallel(self):
        twin = super()._replicate_for_data_parallel()
        twin._forward_hooks = OWN
        del twin._forward_pre_hooks
        return twin


def test_dictionaries_of_hooks_that_a_module_makes_itself_are_left_alone():
    replicas = replicate(Reshaping(2, 2), CPUS)
    assert all(replica._forward_hooks is OWN for replica in replicas)
    assert not any("_forward_pre_hooks" in vars(replica) for replica in replicas)


def test_other_dictionaries_of_hooks_are_copied():
    module = Reshaping(2, 2)
    replicas = replicate(module, CPUS)
    assert len({id(each._backward_hooks) for each in (module, *replicas)}) == 3


def test_only_parameters_count_as_such():
    tensors = [nn.Parameter(torch.ones(1)), torch.ones(1), torch.ones(1).as_subclass(Own)]
    assert [_replica._is_parameter(tensor) for tensor in tensors] == [True, False, False]
