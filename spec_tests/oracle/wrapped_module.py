"""The law of DataParallel: its outputs and gradients equal those of the wrapped module alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.compare.outcome import Call, cotangent
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology


def run_wrapped_and_plain(call: Call, target: Target, topology: Topology) -> Any:
    """Return output and gradients of ``DataParallel(module)``, and those of ``module`` alone."""
    inputs = call.inputs(topology)
    module, (x,) = inputs["module"], inputs["args"]
    leaves = [leaf for leaf in (x, *module.parameters(), *module.buffers()) if leaf.requires_grad]
    actual = call.run(target, inputs)
    expected = module(x.to(actual.device))
    return _with_gradients(actual, leaves), _with_gradients(expected, leaves)


def _with_gradients(output: Tensor, leaves: Sequence[Tensor]) -> Any:
    gradients: Sequence[Tensor | None] = ()
    if output.requires_grad:
        gradients = torch.autograd.grad(output, leaves, cotangent(output), allow_unused=True)
    return snapshot([output, *gradients], {}, strides=False)
