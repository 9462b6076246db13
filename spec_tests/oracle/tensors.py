"""Expected values, addresses and version counters of tensors."""

from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np
import torch
from torch import Tensor

from spec_tests.checks.nested_values import tensors
from spec_tests.machine import capabilities
from spec_tests.machine.capabilities import dtype_name


def dense_sum(addends: Sequence[Tensor]) -> np.ndarray:
    """Return the float64 sum of tensors on any devices, dense or sparse."""
    return np.asarray(sum(to_numpy(addend) for addend in addends))


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return ``tensor``, dense or sparse and on any device, as a float64 array."""
    return np.asarray(tensor.detach().to_dense().cpu().double())


def address_ranges(value: object, name: str = "") -> list[tuple[int, int, str]]:
    """Return start and end address, and path, of each non-empty dense tensor in ``value``.

    The paths begin with ``name``. The end is correct for contiguous tensors only. The test is
    not-run if the devices' memory has no addresses.
    """
    capabilities.require("addresses")
    found = [each for each in tensors(value, name) if each[1].numel() and not each[1].is_sparse]
    starts = [tensor.data_ptr() for _, tensor in found]
    return [
        (start, start + tensor.numel() * tensor.element_size(), path)
        for start, (path, tensor) in zip(starts, found, strict=True)
    ]


def find_overlaps(address_ranges: Sequence[tuple[int, int, str]]) -> list[str]:
    """Return a text for each pair of neighbouring address ranges that share bytes."""
    pairs = pairwise(sorted(address_ranges))
    return [
        f"{first[2]} shares memory with {second[2]}"
        for first, second in pairs
        if first[1] > second[0]
    ]


def find_shared(results: object, inputs: object) -> list[str]:
    """Return a text for each pair of results that share bytes, also with one input.

    Inputs are compared one at a time with the results: the address ranges of two strided inputs
    may overlap although the inputs share no element.
    """
    found = address_ranges(results, "output")
    spans = address_ranges(inputs, "input")
    pairs = [pair for span in spans for pair in find_overlaps([span, *found])]
    return [*dict.fromkeys([*find_overlaps(found), *pairs])]


def count_version_bumps(tensors: Sequence[Tensor]) -> np.ndarray:
    """Write to one tensor after another. Return a table of increases of the version counters.

    Row ``j``, column ``i``: the increase for tensor ``i`` after the writes to tensors 0 to ``j``.
    """
    before = [tensor._version for tensor in tensors]
    table = np.zeros((len(tensors), len(tensors)))
    for row, written in zip(table, tensors, strict=True):
        written.zero_()
        row[:] = [tensor._version for tensor in tensors]
    return table - before


def concatenate_on_cpu(chunks: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate the chunks on the CPU."""
    return torch.cat([chunk.detach().cpu() for chunk in chunks], dim)


def stack_on_cpu(tensors: Sequence[Tensor]) -> Tensor:
    """Stack the tensors on the CPU."""
    return torch.stack([tensor.detach().cpu() for tensor in tensors])


def order_sensitive_addends(count: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return addends whose sum in ``dtype`` depends on the order of addition and on the precision.

    Small numbers are lost when they are added to large ones. The elements at one index of all
    addends are a permutation of the same numbers. The test is not-run if the devices do not
    compute in the dtype.
    """
    capabilities.require(dtype_name(dtype))
    large = 2 / torch.finfo(dtype).eps
    values = [1.0, large, -large, 3.0, 0.1][:count]
    return list(torch.tensor(list(permutations(values)), dtype=dtype).T.contiguous())
