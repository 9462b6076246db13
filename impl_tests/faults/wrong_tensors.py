"""Tensors and modules that are wrong for most arguments."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["TENSORS"]


class _Subclass(Tensor):
    """A subclass of Tensor that overrides nothing."""


def _made_in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return torch.ones(4, 3, device="sim:0")


def _uninitialized_module() -> nn.Module:
    return nn.Linear.__new__(nn.Linear)


def _module_without_parameters() -> nn.Module:
    module = nn.Linear(3, 2)
    module._parameters["weight"] = None
    return module


def _cyclic_module() -> nn.Module:
    module = nn.Module()
    module._modules["self"] = module
    return module


def _csr() -> Tensor:
    crow, col, values = torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2)
    return torch.sparse_csr_tensor(crow, col, values, (2, 2), check_invariants=False)


def _coo() -> Tensor:
    indices = torch.tensor([[0, 1], [0, 1]])
    return torch.sparse_coo_tensor(indices, torch.ones(2), (2, 2), check_invariants=False)


#: Name -> a function that returns a new tensor, list of tensors, or module.
TENSORS: dict[str, Callable[[], Any]] = {
    "tensor of the CPU": lambda: torch.ones(4, 3),
    "tensor of sim:0": lambda: torch.ones(4, 3, device="sim:0"),
    "tensor of sim:3": lambda: torch.ones(4, 3, device="sim:3"),
    "meta tensor": lambda: torch.ones(4, 3, device="meta"),
    "scalar": lambda: torch.tensor(1.5),
    "scalar of sim:0": lambda: torch.tensor(1, device="sim:0"),
    "empty tensor": lambda: torch.empty(0),
    "tensor without rows": lambda: torch.empty(0, 3, device="sim:0"),
    "tensor without columns": lambda: torch.empty(4, 0, device="sim:0"),
    "tensor of one row": lambda: torch.ones(1, 3, device="sim:0"),
    "tensor of 9 dimensions": lambda: torch.ones([1] * 9, device="sim:0"),
    "integers": lambda: torch.ones(4, 3, dtype=torch.int64, device="sim:0"),
    "bools": lambda: torch.ones(4, 3, dtype=torch.bool, device="sim:0"),
    "complex numbers": lambda: torch.ones(4, 3, dtype=torch.complex64, device="sim:0"),
    "half precision": lambda: torch.ones(4, 3, dtype=torch.float16, device="sim:0"),
    "float8": lambda: torch.ones(4, 3).to(torch.float8_e4m3fn),
    "NaN": lambda: torch.full((4, 3), float("nan"), device="sim:0"),
    "COO": _coo,
    "COO of sim:0": lambda: _coo().to("sim:0"),
    "CSR": _csr,
    "made in inference mode": _made_in_inference_mode,
    "expanded": lambda: torch.ones(1, 3, device="sim:0").expand(4, 3),
    "conjugated": lambda: torch.ones(4, 3, dtype=torch.complex64).conj(),
    "negated view": lambda: torch.ones(4, 3, dtype=torch.complex64).conj().imag,
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "tensor subclass": lambda: torch.ones(4, 3).as_subclass(_Subclass),
    "parameter": lambda: nn.Parameter(torch.ones(4, 3, device="sim:0")),
    "uninitialized parameter": lambda: nn.UninitializedParameter(),
    "requires grad": lambda: torch.ones(4, 3, device="sim:0", requires_grad=True),
    "list of CPU tensors": lambda: [torch.ones(2), torch.ones(2)],
    "list of one tensor": lambda: [torch.ones(2, device="sim:0")],
    "list of different shapes": lambda: [
        torch.ones(2, device="sim:0"),
        torch.ones(3, 3, device="sim:1"),
    ],
    "list of different dtypes": lambda: [
        torch.ones(2, device="sim:0"),
        torch.ones(2, dtype=torch.int64, device="sim:1"),
    ],
    "list with None": lambda: [torch.ones(2, device="sim:0"), None],
    "list with meta": lambda: [torch.ones(2, device="sim:0"), torch.ones(2, device="meta")],
    "lists of tensors": lambda: [[torch.ones(2, device="sim:0")], []],
    "lists on one device": lambda: [[torch.ones(2, device="sim:0")]] * 2,
    "module of the CPU": lambda: nn.Linear(3, 2),
    "module of sim:1": lambda: nn.Linear(3, 2).to("sim:1"),
    "meta module": lambda: nn.Linear(3, 2, device="meta"),
    "lazy module": lambda: nn.LazyLinear(2),
    "module without __init__": _uninitialized_module,
    "module with a parameter None": _module_without_parameters,
    "module that contains itself": _cyclic_module,
    "module without forward": nn.Module,
    "list of one module": lambda: [nn.Linear(3, 2).to("sim:0")],
    "list of modules": lambda: [nn.Identity(), nn.Identity()],
    "list of None modules": lambda: [None, None],
}
