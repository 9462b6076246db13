"""What NCCL does with one rank: broadcasts to a single device, and gradients summed over it.

``torch.nn.parallel.comm.broadcast`` may make a communicator of one rank, and then refuses dtypes
and leaves version counters alone. impl makes none; it must work where there is one.
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
    """Print what both libraries do; return 1 if impl is wrong."""
    warnings.simplefilter("ignore")
    wrong = sum(_broadcast(dtype) for dtype in _DTYPES)
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("nccl", init_method=f"file://{file.name}", rank=0, world_size=1)
        wrong += _training()
        dist.destroy_process_group()
    return int(wrong > 0)


def _broadcast(dtype: torch.dtype) -> bool:
    expected = torch.ones(8, dtype=dtype)
    for name in ("torch.nn.parallel", "impl"):
        sent, found = expected.cuda(), None
        try:
            (found,) = importlib.import_module(f"{name}.comm").broadcast(sent, [0])
            print(dtype, name, "is the input:", found is sent, "version:", found._version)
        except RuntimeError as error:
            print(dtype, name, str(error).partition("\n")[0])
    return found is None or not torch.equal(found.cpu(), expected)


def _training() -> bool:
    module = torch.nn.Linear(4, 3).cuda()
    wrapped = impl.DataParallel(module, [0, 0])
    wrapped(torch.ones(6, 4, device="cuda")).sum().backward()
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)
    found = [parameter.grad for parameter in module.parameters()]
    print("gradients:", found)
    return not all(grad is not None and bool((grad == 6).all()) for grad in found)


if __name__ == "__main__":
    sys.exit(main())
