"""PyTorch's OpInfo database: the operators and their sample inputs.

Use it in a separate process only: PyTorch's test helpers change the Hypothesis profile and freeze
the flags of the back ends for the whole process.
"""

import sys
import types
import unittest
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["DTYPES", "QUICK_DTYPES", "Case", "cases"]

#: One dtype for each kind of kernel: gradients, integers, complex, bool, half precision.
DTYPES = ("float32", "int64", "complex64", "bool", "bfloat16")
QUICK_DTYPES = ("float32", "int64")
_LAYOUTS = ("sparse_coo", "sparse_csr")


@dataclass(frozen=True)
class Case:
    """One operator in one layout and one dtype, with PyTorch's sample inputs.

    Args:
        operator: The name in the database with the variant, and with the layout if it is sparse.
        dtype: The name of the dtype.
        info: The OpInfo.
        layout: The layout of the inputs: ``dense`` or a sparse layout.
    """

    operator: str
    dtype: str
    info: Any
    layout: str

    @property
    def has_gradients(self) -> bool:
        """Whether gradients are compared: in float32 and complex64, if the operator has them."""
        return (
            self.dtype in ("float32", "complex64")
            and self.info.supports_autograd
            and getattr(torch, self.dtype) in self.info.supported_backward_dtypes("cpu")
        )

    def samples(self, device: str, *, requires_grad: bool) -> Iterator[Any]:
        """Yield the sample inputs on ``device``."""
        name = "sample_inputs" if self.layout == "dense" else f"sample_inputs_{self.layout}"
        unspecified = getattr(self.info, f"{name}_func").__name__ == "_sample_inputs_unspecified"
        make = self.info.sample_inputs if unspecified else getattr(self.info, name)
        for sample in make(device, getattr(torch, self.dtype), requires_grad=requires_grad):
            if not unspecified:
                yield sample
            elif sample.input.dim() == 2:
                sample.input = _as_sparse(sample.input, self.layout)
                yield sample


def _as_sparse(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    sparse = tensor.detach().to_sparse(layout=getattr(torch, layout))
    return sparse.requires_grad_(tensor.requires_grad)


def cases(dtypes: Iterable[str]) -> list[Case]:
    """Return the cases that the CPU supports, sorted by name."""
    wanted = list(dtypes)
    supported = [
        Case(name, dtype, info, layout)
        for info in _infos()
        for name, layout in _layouts_of(info)
        for dtype in wanted
        if getattr(torch, dtype) in info.supported_dtypes("cpu")
    ]
    return sorted(supported, key=lambda case: (case.operator, case.dtype))


def _layouts_of(info: Any) -> Iterator[tuple[str, str]]:
    yield info.full_name, "dense"
    for layout in _LAYOUTS:
        if info.supports_sparse_layout(getattr(torch, layout)):
            yield f"{info.full_name} {layout}", layout


def _infos() -> list[Any]:
    # PyTorch's test cases inherit from expecttest.TestCase. None is created here.
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal import common_methods_invocations as database
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    # These functions search all modules for the running test. No test is running.
    for module in (common_utils, core):
        module.extract_test_fn = lambda: None  # type: ignore[attr-defined]

    foreach = [
        info
        for name in sorted(vars(database))
        if name.startswith("foreach_") and name.endswith("_op_db")
        for info in getattr(database, name)
    ]
    return [*database.op_db, *foreach]
