"""Values that are wrong for all or for most arguments.

Some values are left out, because Python's or PyTorch's own functions do not return for them:
``list`` does not end for an infinite iterator, and ``torch.add`` ends the process for an object
whose ``__class__`` is Tensor and for a tensor whose storage is freed.
"""

import collections
import decimal
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["VALUES"]


def _object_with(**members: Any) -> object:
    """Return an object of a new class with the attributes ``members``."""
    return type("Odd", (), members)()


def _closed_generator() -> Iterator[int]:
    generator = (index for index in range(2))
    generator.close()
    return generator


def _cyclic_list() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


class _Subclass(Tensor):
    """A subclass of Tensor that overrides nothing."""


def _ones(*shape: int, device: str = "sim:0", dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, device=device, dtype=dtype)


def _made_in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return _ones(4, 3)


def _csr() -> Tensor:
    crow, col, values = torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2)
    return torch.sparse_csr_tensor(crow, col, values, (2, 2), check_invariants=False)


def _coo() -> Tensor:
    indices = torch.tensor([[0, 1], [0, 1]])
    return torch.sparse_coo_tensor(indices, torch.ones(2), (2, 2), check_invariants=False)


_NUMBERS: tuple[Any, ...] = (
    *(True, False, 0, 1, -1, -3, 2, 4, 127, 128, 255, 2**31, 2**63, -(2**63)),
    *(0.0, 1.0, 1.5, math.nan, math.inf, 1j, decimal.Decimal(1)),
    *(np.int64(1), np.float32(1), np.bool_(True), np.str_("sim:0")),
)
_TEXTS: tuple[Any, ...] = (
    *("", "sim", "sim:0", "sim:99", "sim:-1", " sim:0", "sim:0\0", "sim:" + "9" * 50),
    *("cpu", "cuda", "cuda:0", "meta", "nonsense", "0", b"sim:0"),
)
_SEQUENCES: tuple[Any, ...] = (
    *((), [], [0], [0, 1], [1, 0], [0, 0], [0, 1, 2, 3], [0, 99], [None, None], [-1, 0]),
    *(["cpu", "cpu"], ["cpu", 0], [0.0, 1.0], ["0", "1"], [True, False], [[0], [1]]),
    *([2**63, 0], [1] * 1000, ["sim:0", "sim:1"], (0, 1), [()], [{}], [object()], range(2)),
)
_TABLES: tuple[Any, ...] = (*({}, {None: None}, {0: 0}, {"x": 1}, {"": ""}, {(): []}),)
#: Name of a wrong value -> a function that returns it.
_OBJECTS: dict[str, Callable[[], Any]] = {
    "set": lambda: {0, 1},
    "deque": lambda: collections.deque([0, 1]),
    "UserDict": lambda: collections.UserDict(x=1),
    "dict keys": lambda: {0: 0, 1: 1}.keys(),
    "memoryview": lambda: memoryview(b"ab"),
    "numpy array": lambda: np.arange(2),
    "numpy objects": lambda: np.array([None, "x"], dtype=object),
    "cyclic list": _cyclic_list,
    "iterator": lambda: iter([0, 1]),
    "closed generator": _closed_generator,
    "object()": object,
    "NotImplemented": lambda: NotImplemented,
    "class": lambda: int,
    "torch.nn.Linear": lambda: nn.Linear,
    "lambda": lambda: lambda *args, **kwargs: None,
    "built-in function": lambda: len,
    "exception class": lambda: KeyboardInterrupt,
    "__index__ is 1": lambda: _object_with(__index__=lambda self: 1),
    "torch.device sim": lambda: torch.device("sim"),
    "torch.device sim:99": lambda: torch.device("sim", 99),
    "devices 0 and cuda:0": lambda: [torch.device("sim", 0), torch.device("cuda", 0)],
    "torch.Size": lambda: torch.Size([2, 3]),
    "streams of sim:1": lambda: [torch.Stream(device="sim:1")] * 2,
    "storage": lambda: torch.ones(2).untyped_storage(),
    "tensor of the CPU": lambda: _ones(4, 3, device="cpu"),
    "tensor of sim:3": lambda: _ones(4, 3, device="sim:3"),
    "meta tensor": lambda: _ones(4, 3, device="meta"),
    "scalar": lambda: torch.tensor(1.5),
    "scalar of sim:0": lambda: torch.tensor(1, device="sim:0"),
    "tensor without rows": lambda: _ones(0, 3),
    "tensor without columns": lambda: _ones(4, 0),
    "tensor of one row": lambda: _ones(1, 3),
    "tensor of 9 dimensions": lambda: _ones(*[1] * 9),
    "integers": lambda: _ones(4, 3, dtype=torch.int64),
    "complex numbers": lambda: _ones(4, 3, dtype=torch.complex64),
    "half precision": lambda: _ones(4, 3, dtype=torch.float16),
    "float8": lambda: torch.ones(4, 3).to(torch.float8_e4m3fn),
    "COO": _coo,
    "COO of sim:0": lambda: _coo().to("sim:0"),
    "CSR": _csr,
    "made in inference mode": _made_in_inference_mode,
    "expanded": lambda: _ones(1, 3).expand(4, 3),
    "conjugated": lambda: torch.ones(4, 3, dtype=torch.complex64).conj(),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "tensor subclass": lambda: torch.ones(4, 3).as_subclass(_Subclass),
    "uninitialized parameter": lambda: nn.UninitializedParameter(),
    "requires grad": lambda: _ones(4, 3).requires_grad_(),
    "list of CPU tensors": lambda: [torch.ones(2), torch.ones(2)],
    "list of one tensor": lambda: [_ones(2)],
    "list of different shapes": lambda: [_ones(2), _ones(3, 3, device="sim:1")],
    "list of different dtypes": lambda: [_ones(2), _ones(2, device="sim:1", dtype=torch.int64)],
    "list with None": lambda: [_ones(2), None],
    "list with meta": lambda: [_ones(2), _ones(2, device="meta")],
    "lists of tensors": lambda: [[_ones(2)], []],
    "lists on one device": lambda: [[_ones(2)]] * 2,
    "module of the CPU": lambda: nn.Linear(3, 2),
    "module of sim:1": lambda: nn.Linear(3, 2).to("sim:1"),
    "meta module": lambda: nn.Linear(3, 2, device="meta"),
    "lazy module": lambda: nn.LazyLinear(2),
    "module without __init__": lambda: nn.Linear.__new__(nn.Linear),
    "module without forward": nn.Module,
    "list of one module": lambda: [nn.Linear(3, 2).to("sim:0")],
    "list of modules": lambda: [nn.Identity(), nn.Identity()],
    "list of None modules": lambda: [None, None],
}


def _constant(value: Any) -> Callable[[], Any]:
    # Copy a list or dictionary, because a call may change it.
    return lambda: value.copy() if isinstance(value, (list, dict)) else value


#: Name of a wrong value -> a function that returns it.
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    **{
        f"{type(value).__name__} {ascii(value)[:40]}": _constant(value)
        for value in (*_NUMBERS, *_TEXTS, *_SEQUENCES, *_TABLES)
    },
    **_OBJECTS,
}
