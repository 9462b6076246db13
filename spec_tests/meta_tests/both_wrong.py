"""What torch.nn.parallel offers, wrong in the same way wherever it is called from."""

from typing import Any

import torch
from torch import nn

from spec_tests.harness.environment.target import Target

#: Where the wrong ones are.
HERE = "spec_tests.meta_tests.both_wrong"
parallel: Any = torch.nn.parallel  # partly without annotations


def wrong(*names: str) -> Target:
    """torch.nn.parallel with these functions, ``comm.scatter``, from here."""
    return Target("torch.nn.parallel", {name: f"{HERE}:{name.split('.')[1]}" for name in names})


def scatter(*args: Any, **kwargs: Any) -> Any:
    """The chunks in the wrong order."""
    return tuple(parallel.comm.scatter(*args, **kwargs))[::-1]


def gather(outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """The outputs joined in the wrong order."""
    return parallel.gather(outputs[::-1], *args, **kwargs)


def reduce_add(inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """The first input twice."""
    return parallel.comm.reduce_add([*inputs, inputs[0]], *args, **kwargs)


def replicate(*args: Any, **kwargs: Any) -> Any:
    """Replicas in evaluation mode."""
    return [replica.eval() for replica in parallel.replicate(*args, **kwargs)]


def parallel_apply(*args: Any, **kwargs: Any) -> Any:
    """The results in the wrong order."""
    return parallel.parallel_apply(*args, **kwargs)[::-1]


def data_parallel(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The negative of the outputs."""
    return torch.neg(parallel.data_parallel(module, *args, **kwargs))


class Broadcast:
    """Copies of the first tensor only."""

    @staticmethod
    def apply(devices: Any, *tensors: Any) -> Any:
        """As many copies as there ought to be."""
        return parallel._functions.Broadcast.apply(devices, *[tensors[0]] * len(tensors))
