"""Check impl in a process that uses NCCL: broadcast to one device, and all-reduce of gradients.

``torch.nn.parallel.comm.broadcast`` may create an NCCL communicator of one rank. NCCL refuses some
dtypes and does not increase version counters. impl creates no communicator, but must work if one
exists.
"""

import importlib
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist

import impl

_DTYPES = (torch.float32, torch.bfloat16, torch.int16, torch.bool, torch.complex64, torch.uint32)


def main() -> int:
    """Print the results of both libraries; return 1 if a result of impl is wrong."""
    warnings.simplefilter("ignore")
    wrong = sum(_broadcast_is_wrong(dtype) for dtype in _DTYPES)
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("nccl", init_method=f"file://{file.name}", rank=0, world_size=1)
        wrong += _gradients_are_wrong()
        dist.destroy_process_group()
    return int(wrong > 0)


def _broadcast_is_wrong(dtype: torch.dtype) -> bool:
    expected = torch.ones(8, dtype=dtype)
    for name in ("torch.nn.parallel", "impl"):
        tensor, copy = expected.cuda(), None
        try:
            (copy,) = importlib.import_module(f"{name}.comm").broadcast(tensor, [0])
            print(dtype, name, "is the input:", copy is tensor, "version:", copy._version)
        except RuntimeError as error:
            print(dtype, name, str(error).partition("\n")[0])
    # The loop ends with impl, so ``copy`` is the result of impl.
    return copy is None or not torch.equal(copy.cpu(), expected)


def _gradients_are_wrong() -> bool:
    module = torch.nn.Linear(4, 3).cuda()
    wrapped = impl.DataParallel(module, [0, 0])
    wrapped(torch.ones(6, 4, device="cuda")).sum().backward()
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)
    grads = [parameter.grad for parameter in module.parameters()]
    print("gradients:", grads)
    return not all(grad is not None and bool((grad == 6).all()) for grad in grads)


if __name__ == "__main__":
    sys.exit(main())
