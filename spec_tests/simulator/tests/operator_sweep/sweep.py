"""Run all sample inputs of one operator in one dtype."""

from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

from torch import Tensor, strided
from torch.utils._pytree import tree_map

from .database import Case
from .trial import DEVICE, Comparison, Trial, compare

__all__ = ["run"]

#: In a quick sweep: the number of sample inputs for each operator and dtype.
_QUICK_SAMPLES = 2
#: Operators that return uninitialized memory.
_UNINITIALIZED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
#: Operators for which PyTorch's CPU kernel differs from the kernel of all other devices. Attention
#: has a flash kernel, which sums in another order and returns other strides. Linear cross entropy
#: in chunks accumulates in another way in half precision.
_OTHER_KERNELS = (
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.linear_cross_entropy.chunked",
    "nn.functional.linear_cross_entropy.chunked_none",
)


def run(case: Case, *, quick: bool) -> list[Trial]:
    """Run the samples of ``case``, with ``quick`` at most two, and return their outcomes."""
    max_samples = _QUICK_SAMPLES if quick else None
    comparison = Comparison(
        values=case.operator not in _UNINITIALIZED,
        same_kernel=case.operator not in _OTHER_KERNELS,
    )
    outcomes: list[Trial] = []
    for function, with_gradients in _variants(case, quick=quick):
        samples = case.samples(DEVICE, requires_grad=with_gradients)
        outcomes += _compare_samples(function, samples, comparison, with_gradients, max_samples)
    return outcomes


def _variants(case: Case, *, quick: bool) -> Iterator[tuple[Callable[..., Any], bool]]:
    """Yield pairs: the operator or its in-place variant, and whether to compare gradients."""
    yield case.info.op, case.has_gradients
    if case.info.inplace_variant is not None and not quick:
        yield case.info.inplace_variant, False


def _compare_samples(
    function: Callable[..., Any],
    samples: Iterator[Any],
    comparison: Comparison,
    with_gradients: bool,
    max_samples: int | None,
) -> Iterator[Trial]:
    try:
        for number, sample in enumerate(islice(samples, max_samples)):
            yield _compare_sample(function, sample, comparison, with_gradients)
            if number == 0:
                yield _compare_sample(function, _transposed(sample), comparison, with_gradients)
    except NotImplementedError as error:  # the device cannot create the inputs
        yield Trial("unimplemented", str(error).split("\n")[0])


def _compare_sample(
    function: Callable[..., Any], sample: Any, comparison: Comparison, with_gradients: bool
) -> Trial:
    outcome = compare(function, sample, comparison, with_gradients=with_gradients)
    if outcome.verdict == "unsupported" and with_gradients:
        return compare(function, sample, comparison, with_gradients=False)
    return outcome


def _transposed(sample: Any) -> Any:
    """Return the sample with column-major matrices."""

    def transpose(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.layout is strided and leaf.dim() > 1:
            return leaf.detach().mT.contiguous().mT.requires_grad_(leaf.requires_grad)
        return leaf

    arguments = tree_map(transpose, [sample.input, sample.args, sample.kwargs])
    return SimpleNamespace(**dict(zip(("input", "args", "kwargs"), arguments, strict=True)))
