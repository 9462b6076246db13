"""Selects the modules that the devices under test compute as the CPU does.

A back end may lack an operator of a layer or compute it wrong. Calls with such a layer would show
nothing about the target.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from spec_tests.machine import capabilities, probes
from spec_tests.machine.capabilities import dtype_name
from spec_tests.machine.devices import Topology, not_run
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.module_kinds import MODULE_KINDS, build_module

#: The largest absolute or relative difference between a result on the devices and on the CPU.
#: Some devices compute float32 products with a mantissa of 10 bits (TF32).
TOLERANCE = 1e-2
#: The length in characters to which the text of an error is cut.
MAX_TEXT = 120


def computed(kinds: Sequence[str]) -> list[str]:
    """Return those of ``kinds`` that the devices compute as the CPU does.

    If there is none, the test ends as not-run. Outside a run of the suite, all kinds are returned.

    Args:
        kinds: Keys of `MODULE_KINDS`.
    """
    used = capabilities.in_use()
    if used is None:
        return list(kinds)
    errors = {
        kind: _find_error(kind, used.topology) or _describe_missing(kind, used) for kind in kinds
    }
    if all(errors.values()):
        kind, error = next(iter(errors.items()))
        not_run(f"the devices do not compute the layer {kind} as the CPU does: {error}")
    return [kind for kind, error in errors.items() if not error]


def find_errors(topology: Topology) -> dict[str, str]:
    """Return layer -> error for the layers that the devices do not compute as the CPU does."""
    errors = {kind: _find_error(kind, topology) for kind in MODULE_KINDS}
    return {kind: error for kind, error in errors.items() if error}


@cache
def _find_error(kind: str, topology: Topology) -> str:
    """Return the first line of a layer's error; empty if the devices compute it as the CPU does.

    All layers are tried together on real devices, because this starts a process.
    """
    kinds = [kind] if topology.accelerator == "sim" else [*MODULE_KINDS]
    findings = probes.find_all(compare_layer, kinds, topology)
    return next(each.text[:MAX_TEXT] for each in findings if each.name == kind)


def _describe_missing(kind: str, used: capabilities.Capabilities) -> str:
    missing = [name for name in _find_needs(kind) if not used.offers(name)]
    return f"the devices lack {', '.join(missing)}" if missing else ""


@cache
def _find_needs(kind: str) -> list[str]:
    """Return the dtypes of a layer's parameters, and "sparse" if it has a sparse buffer.

    Devices that lack sparse tensors may compute with a sparse buffer, and fail to copy it.
    """
    module = build_module(kind)
    needs = {dtype_name(each.dtype) for each in module.parameters()}
    sparse = {"sparse"} if any(each.is_sparse for each in module.buffers()) else set()
    return sorted(needs | sparse)


def compare_layer(kind: str, topology: Topology) -> None:
    """Raise an AssertionError if a layer's outputs or gradients differ from those on the CPU."""
    found, expected = _results(kind, topology.device(0)), _results(kind, torch.device("cpu"))
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def _results(kind: str, device: torch.device) -> list[Tensor]:
    """Return, as CPU tensors, the module's outputs for several batch sizes and its gradients."""
    module = build_module(kind).to(device)
    rows = torch.arange(5.0 * WIDTH).view(5, WIDTH) / WIDTH
    results = [module(rows[:count].to(device)) for count in (2, 5)]
    if any(result.requires_grad for result in results):
        torch.autograd.backward([(result * result).sum() for result in results])
    results += [each.grad for each in module.parameters() if each.grad is not None]
    with torch.no_grad():
        results.append(module.eval()(rows[:1].to(device)))
    return [result.detach().cpu().to_dense() for result in results]
