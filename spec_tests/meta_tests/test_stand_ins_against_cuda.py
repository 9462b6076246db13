"""Each stand-in beside the primitive that it stands in for, on the same calls, on CUDA.

Elsewhere the comparison is not run, but every call still is.
"""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.harness.environment.topology import not_run
from spec_tests.strategies.tensors import counting

#: Facts that differ by design where copies between CUDA devices travel over NCCL.
NCCL = ("version", "graph")


def counted(*shape, dtype=torch.float32):
    return counting(shape, dtype)


def tall(*shape):
    return counted(*shape).to(memory_format=torch.channels_last)


def grad(tensor):
    return tensor.detach().requires_grad_()


def sparse(count):
    return torch.sparse_coo_tensor(
        torch.arange(count)[None], torch.ones(count), (9,), check_invariants=True
    )


def stream(device):
    # CUDA's primitives take streams of CUDA's own class only.
    module = torch.get_device_module(device)
    return getattr(module, "Stream", torch.Stream)(device=device)


# Each call is a function of two devices, equal or not, and their ordinals.
CALLS = {
    "_broadcast": [
        lambda a, b, i, j: (counted(2, 3), [i, j]),
        lambda a, b, i, j: (counted(2, 3).to(a), [i, j]),
        lambda a, b, i, j: (counted(2, 3).to(b), [i, i, j]),
        lambda a, b, i, j: (tall(2, 3, 4, 5).to(a), [j, i]),
        lambda a, b, i, j: (grad(counted(3)), [i, j]),
        lambda a, b, i, j: (counted(3, dtype=torch.complex64), [i]),
        lambda a, b, i, j: (sparse(2).to(a), [i, j]),
        lambda a, b, i, j: (sparse(2), [i, j]),
        lambda a, b, i, j: (counted(3), []),
        lambda a, b, i, j: (counted(3), [i, -1]),
    ],
    "_broadcast_out": [
        lambda a, b, i, j: (counted(2, 3), [counted(2, 3).to(a), counted(2, 3).to(b)]),
        lambda a, b, i, j: (counted(2, 3).to(a), [counted(3, 2).to(b).t()]),
        lambda a, b, i, j: (counted(3), [counted(3, dtype=torch.int16).to(a)]),
        lambda a, b, i, j: (grad(counted(3)), [counted(3).to(a)]),
        lambda a, b, i, j: (counted(3), [grad(counted(3).to(a))]),
        lambda a, b, i, j: (sparse(2), [sparse(1).to(a)]),
        lambda a, b, i, j: (counted(3), []),
        lambda a, b, i, j: (counted(3), [counted(3).to(a), counted(3)]),
        lambda a, b, i, j: (counted(3), [counted(3).to(a), counted(1, 3).to(b)]),
    ],
    "_broadcast_coalesced": [
        lambda a, b, i, j: ([counted(3).to(a), counted(2, 2).to(a)], [i, j], 1 << 20),
        lambda a, b, i, j: ([counted(3).to(a), counted(2, 2).to(a)], [i, j], 0),
        lambda a, b, i, j: ([counted(2).to(a) for _ in range(5)], [i, j], 17),
        lambda a, b, i, j: ([tall(2, 3, 4, 5).to(a)], [i, j], 1 << 20),
        lambda a, b, i, j: ([grad(counted(3).to(a)), counted(0, 4).to(a)], [i, j], 1 << 20),
        lambda a, b, i, j: ([counted(3).to(a), counted(3).to(a).long()], [i, j, i], 1 << 20),
        lambda a, b, i, j: ([sparse(2).to(a), sparse(3).to(a), counted(1).to(a)], [i, j], 48),
        lambda a, b, i, j: ([sparse(2).coalesce().to(a)], [i, j], 1 << 20),
        lambda a, b, i, j: ([], [i, j], 1 << 20),
        lambda a, b, i, j: ([counted(3)], [i, j], 1 << 20),
        lambda a, b, i, j: ([counted(3).to(a)], [i, -1], 1 << 20),
    ],
    "_scatter": [
        lambda a, b, i, j: (counted(5, 2), [i, j], None, 0, None),
        lambda a, b, i, j: (counted(5, 2), [i, j, i, j], None, 0, None),
        lambda a, b, i, j: (counted(5, 6).to(a), [i, j], [0, 6], -1, None),
        lambda a, b, i, j: (counted(6, 4).t(), [i, j], None, 0, None),
        lambda a, b, i, j: (counted(1, 4).expand(4, 4), [i, j], None, 0, None),
        lambda a, b, i, j: (tall(4, 3, 5, 5), [i, j], None, 0, None),
        lambda a, b, i, j: (grad(counted(4)), [i, j], None, 0, None),
        lambda a, b, i, j: (grad(counted(4).to(a)), [i, j], None, 0, None),
        lambda a, b, i, j: (counted(4), [i, j], None, 0, [stream(a), None]),
        lambda a, b, i, j: (counted(4), [-1], None, 0, None),
        lambda a, b, i, j: (counted(4).to(a), [-1], None, 0, None),
        lambda a, b, i, j: (counted(4), [], None, 0, None),
        lambda a, b, i, j: (counted(4), [i], [1, 3], 0, None),
        lambda a, b, i, j: (counted(4), [i], None, 1, None),
        lambda a, b, i, j: (counted(), [i], None, 0, None),
        lambda a, b, i, j: (counted(), [i], [1], 0, None),
        lambda a, b, i, j: (counted(4), [i, j], [-1, 5], 0, None),
        lambda a, b, i, j: (counted(4), [i, j], [1, 1], 0, None),
        lambda a, b, i, j: (counted(4), [i], None, 0, [3]),
        lambda a, b, i, j: (counted(4), [i], None, 0, 3),
        lambda a, b, i, j: (sparse(3), [i, j], None, 0, None),
    ],
    "_scatter_out": [
        lambda a, b, i, j: (counted(4, 4), [counted(1, 4).to(a), counted(3, 4).to(b)], 0, None),
        lambda a, b, i, j: (counted(4, 4), [counted(4, 4).to(a).t().int()], 0, None),
        lambda a, b, i, j: (grad(counted(4)), [counted(4).to(a)], 0, [stream(a)]),
        lambda a, b, i, j: (counted(4), [grad(counted(4).to(a))], 0, None),
        lambda a, b, i, j: (counted(4), [], 0, None),
        lambda a, b, i, j: (counted(4), [counted(4).to(a)], 1, None),
        lambda a, b, i, j: (counted(4), [counted(4)], 0, None),
        lambda a, b, i, j: (counted(4, 4), [counted(1, 2, 4).to(a)], -2, None),
        lambda a, b, i, j: (counted(4), [counted(2).to(a), counted(1).to(b)], 0, None),
    ],
    "_gather": [
        lambda a, b, i, j: ([counted(2, 5).to(a), counted(1, 5).to(b)], 0, None),
        lambda a, b, i, j: ([counted(2, 5).to(a), counted(2, 1).to(b)], -1, -1),
        lambda a, b, i, j: ([tall(2, 3, 4, 5).to(a), tall(2, 3, 4, 5).to(b)], 0, j),
        lambda a, b, i, j: ([tall(2, 3, 4, 5).to(a), counted(2, 3, 4, 5).to(b)], 0, i),
        lambda a, b, i, j: ([counted(2, 5).to(a).t()], 0, i),
        lambda a, b, i, j: ([counted(2).to(a).int(), counted(2).to(b) / 2], 0, i),
        lambda a, b, i, j: ([grad(counted(2).to(a))], 0, i),
        lambda a, b, i, j: ([], 0, i),
        lambda a, b, i, j: ([counted(2).to(a)], 1, i),
        lambda a, b, i, j: ([counted(2).to(a), counted(2)], 0, i),
        lambda a, b, i, j: ([counted(2).to(a), counted(2, 1).to(b)], 0, i),
        lambda a, b, i, j: ([counted(2, 5).to(a), counted(2, 4).to(b)], 0, i),
        lambda a, b, i, j: ([counted().to(a)], 0, i),
        lambda a, b, i, j: ([sparse(2).to(a)], 0, i),
    ],
    "_gather_out": [
        lambda a, b, i, j: ([counted(2).to(a), counted(1).to(b)], counted(3), 0),
        lambda a, b, i, j: ([counted(2, 5).to(a)], counted(5, 2).double().to(b).t(), 0),
        lambda a, b, i, j: ([grad(counted(2).to(a))], counted(2), 0),
        lambda a, b, i, j: ([counted(2).to(a)], grad(counted(2)), 0),
        lambda a, b, i, j: ([counted(2).to(a)], counted(3), 0),
        lambda a, b, i, j: ([counted(2)], counted(2), 0),
        lambda a, b, i, j: ([], counted(2), 0),
    ],
}
every_call = pytest.mark.parametrize(
    ("name", "call"),
    [
        pytest.param(name, call, id=f"{name}-{number}")
        for name, calls in CALLS.items()
        for number, call in enumerate(calls)
    ],
)


def observed(primitive, call, first, second):
    """What came of ``call``: facts of every tensor that went in or came out, or the error."""
    args = call(first, second, first.index, second.index)
    try:
        result = primitive(*args)
    except RuntimeError as error:
        return [type(error), text(error), *facts(args)]
    except IndexError as error:
        return [type(error), text(error)]
    for device in (first, second):  # where a stream was given, its work is the caller's to await
        torch.accelerator.synchronize(device)
    return facts([args, result])


def text(error):
    # Releases differ in one space; the backtrace follows after a line break.
    return str(error).split("\n", 1)[0].replace(" ", "")


def facts(nested):
    tensors = list(flat(nested))
    memory = [storage(tensor) for tensor in tensors]
    return [
        {
            "same": [one is other for other in tensors],
            "shares": [storage(one) == other for other in memory],
            "class": type(one).__name__,
            "values": one.detach().cpu().to_dense().tolist(),
            "dtype": one.dtype,
            "device": one.device,
            "layout": (one.layout, one.is_sparse or (one.stride(), one.storage_offset())),
            "coalesced": one.is_sparse and one.is_coalesced(),
            "view": one._is_view(),
            "requires_grad": one.requires_grad,
            "graph": type(one.grad_fn).__name__,
            "version": one._version,
        }
        for one in tensors
    ]


def flat(nested):
    if isinstance(nested, torch.Tensor):
        yield nested
    elif isinstance(nested, list | tuple):
        for member in nested:
            yield from flat(member)


def storage(tensor):
    dense = tensor._values() if tensor.is_sparse else tensor
    return dense.untyped_storage().data_ptr() if dense.numel() else object()


def without(outcome, dropped):
    return [
        {key: value for key, value in each.items() if key not in dropped}
        if isinstance(each, dict)
        else each
        for each in outcome
    ]


def require_real(name, topology):
    if getattr(torch._C, name) is STAND_INS[name] or topology.accelerator != "cuda":
        not_run(f"torch._C.{name} needs a CUDA build of PyTorch and a CUDA device")


@every_call
def test_stand_in_agrees_with_cuda_on_a_repeated_device(topology, name, call):
    require_real(name, topology)
    devices = topology.device(0), topology.device(0)
    real = observed(getattr(torch._C, name), call, *devices)
    assert observed(STAND_INS[name], call, *devices) == real


@every_call
def test_stand_in_agrees_with_cuda_on_two_devices(topology, name, call):
    require_real(name, topology)
    topology.require(distinct=2)
    devices = topology.device(0), topology.device(1)
    dropped = NCCL if name in ("_broadcast", "_broadcast_out") else ()
    real = observed(getattr(torch._C, name), call, *devices)
    stand_in = observed(STAND_INS[name], call, *devices)
    assert without(stand_in, dropped) == without(real, dropped)


@every_call
def test_stand_in_is_deterministic(topology, name, call):
    devices = topology.device(0), topology.device(1)
    first = observed(STAND_INS[name], call, *devices)
    assert observed(STAND_INS[name], call, *devices) == first
