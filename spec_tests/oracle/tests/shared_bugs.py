"""Buggy functions. A test uses them as target and as reference, so only the oracle is right."""

from typing import Any

import torch
from torch import nn

from spec_tests.harness.environment.target import Target

parallel: Any = torch.nn.parallel  # has incomplete annotations


def wrong_target(function_name: str) -> Target:
    """Return torch.nn.parallel with one function, such as ``comm.scatter``, from this module."""
    replacement = f"{__name__}:{function_name.split('.')[1]}"
    return Target("torch.nn.parallel", {function_name: replacement})


def scatter(*args: Any, **kwargs: Any) -> Any:
    """Return the chunks in reverse order."""
    return tuple(parallel.comm.scatter(*args, **kwargs))[::-1]


def gather(outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Concatenate the outputs in reverse order."""
    return parallel.gather(outputs[::-1], *args, **kwargs)


def reduce_add(inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Add the first input twice."""
    return parallel.comm.reduce_add([*inputs, inputs[0]], *args, **kwargs)


def replicate(*args: Any, **kwargs: Any) -> Any:
    """Return replicas in evaluation mode."""
    return [replica.eval() for replica in parallel.replicate(*args, **kwargs)]


def parallel_apply(*args: Any, **kwargs: Any) -> Any:
    """Return the results in reverse order."""
    return parallel.parallel_apply(*args, **kwargs)[::-1]


def data_parallel(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the negated output."""
    return torch.neg(parallel.data_parallel(module, *args, **kwargs))


class Broadcast:
    """A broadcast that sends copies of the first tensor in place of all other tensors."""

    @staticmethod
    def apply(devices: Any, *tensors: Any) -> Any:
        """Broadcast a list in which the first tensor replaces all other tensors."""
        return parallel._functions.Broadcast.apply(devices, *[tensors[0]] * len(tensors))
