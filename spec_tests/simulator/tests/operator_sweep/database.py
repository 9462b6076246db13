"""PyTorch's OpInfo database: the operators and their sample inputs.

Import this module only in a separate process: PyTorch's test helpers change the Hypothesis profile
and freeze the flags of the back ends for the whole process.
"""

import sys
import types
import unittest
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

#: One dtype of each kind: float with gradients, integer, complex, bool, half precision.
DTYPES = ("float32", "int64", "complex64", "bool", "bfloat16")
QUICK_DTYPES = ("float32", "int64")
_LAYOUTS = ("sparse_coo", "sparse_csr")
#: Operators that no accelerator has.
_ONLY_ON_CPU = ("sparse.mm.reduce",)


@dataclass(frozen=True)
class Case:
    """One operator in one layout and one dtype, with PyTorch's sample inputs.

    Args:
        operator: The operator's name in the database, followed by the layout if it is sparse.
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
        """Whether to compare gradients: float32 and complex64, if the operator has gradients."""
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


def find_cases(dtypes: Iterable[str]) -> list[Case]:
    """Return the operators and layouts that the CPU supports in ``dtypes``, sorted by name."""
    wanted = list(dtypes)
    supported = [
        Case(name, dtype, info, layout)
        for info in _all_op_infos()
        if info.full_name not in _ONLY_ON_CPU
        for name, layout in _names_and_layouts(info)
        for dtype in wanted
        if getattr(torch, dtype) in info.supported_dtypes("cpu")
    ]
    return sorted(supported, key=lambda case: (case.operator, case.dtype))


def _names_and_layouts(info: Any) -> Iterator[tuple[str, str]]:
    yield info.full_name, "dense"
    for layout in _LAYOUTS:
        if info.supports_sparse_layout(getattr(torch, layout)):
            yield f"{info.full_name} {layout}", layout


def _all_op_infos() -> list[Any]:
    # PyTorch's test helpers need the class expecttest.TestCase as a base class only. This stub
    # replaces the package expecttest, which may not be installed.
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal import common_methods_invocations as database
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    # extract_test_fn searches all modules for the running test. No test is running here.
    for module in (common_utils, core):
        module.extract_test_fn = lambda: None  # type: ignore[attr-defined]

    foreach = [
        info
        for name in sorted(vars(database))
        if name.startswith("foreach_") and name.endswith("_op_db")
        for info in getattr(database, name)
    ]
    return [*database.op_db, *foreach]
