"""Compare every operator in PyTorch's OpInfo database on a simulated device and on the CPU.

``python -m spec_tests.simulator.tests.operator_sweep`` runs all sample inputs of every operator
that the CPU supports, in five dtypes, with gradients. The first one runs a second time, with
column-major matrices. In-place variants run, too. The sweep takes two minutes of one core.

The gate runs ``--quick``: two samples in two dtypes, and no in-place variants. Names of operators
as arguments restrict the sweep to these operators. The exit status is 1 if a result differs from
the CPU's, or if an operator raises NotImplementedError. This file lists the exceptions.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, strided
from torch.utils._pytree import tree_map

from spec_tests import simulator

from . import database
from .database import Case
from .trial import DEVICE, Comparison, Trial, compare

_SIM_DEVICES = 4
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


def main(arguments: list[str]) -> int:
    """Run the sweep, print problems and a summary, and return the exit status."""
    options = _parser().parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # other tests use the other cores
    simulator.enable(_SIM_DEVICES)
    counts: Counter[str] = Counter()
    problems = []
    for case in _selected_cases(options):
        for trial in _run(case, quick=options.quick):
            counts[trial.result] += 1
            if trial.result in ("differs", "unimplemented"):
                text = f"{case.operator} [{case.dtype}] {trial.result}: {trial.detail}"
                problems.append(text)
                print(text, flush=True)
    print(f"{len(problems)} problems; calls: {dict(counts)}")
    return 1 if problems or not counts["agrees"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="operator_sweep", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two samples, two dtypes")
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators; all by default")
    return parser


def _selected_cases(options: argparse.Namespace) -> list[Case]:
    cases = database.find_cases(database.QUICK_DTYPES if options.quick else database.DTYPES)
    return [case for case in cases if case.operator in options.names or not options.names]


def _run(case: Case, *, quick: bool) -> list[Trial]:
    """Run the samples of ``case``, with ``quick`` at most two, and return their trials."""
    max_samples = _QUICK_SAMPLES if quick else None
    comparison = Comparison(
        values=case.operator not in _UNINITIALIZED, same_kernel=case.operator not in _OTHER_KERNELS
    )
    trials: list[Trial] = []
    for function, with_gradients in _variants(case, quick=quick):
        samples = case.samples(DEVICE, requires_grad=with_gradients)
        trials += _compare_samples(function, samples, comparison, with_gradients, max_samples)
    return trials


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
    trial = compare(function, sample, comparison, with_gradients=with_gradients)
    if trial.result == "unsupported" and with_gradients:
        return compare(function, sample, comparison, with_gradients=False)
    return trial


def _transposed(sample: Any) -> Any:
    """Return the sample with column-major matrices."""

    def transpose(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.layout is strided and leaf.dim() > 1:
            return leaf.detach().mT.contiguous().mT.requires_grad_(leaf.requires_grad)
        return leaf

    arguments = tree_map(transpose, [sample.input, sample.args, sample.kwargs])
    return SimpleNamespace(**dict(zip(("input", "args", "kwargs"), arguments, strict=True)))


sys.exit(main(sys.argv[1:]))
