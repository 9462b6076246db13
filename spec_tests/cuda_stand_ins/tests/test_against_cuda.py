"""On CUDA, each stand-in agrees with the function of ``torch._C`` that it replaces."""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.cuda_stand_ins.tests.facts import NCCL_FACTS, drop_facts, facts
from spec_tests.harness.environment.topology import not_run
from spec_tests.strategies.tensors import counting


def arange(*shape, dtype=torch.float32):
    return counting(shape, dtype)


def channels_last(*shape):
    return arange(*shape).to(memory_format=torch.channels_last)


def requiring_grad(tensor):
    return tensor.detach().requires_grad_()


def sparse(count):
    return torch.sparse_coo_tensor(
        torch.arange(count)[None], torch.ones(count), (9,), check_invariants=True
    )


def stream(device):
    # CUDA's primitives accept only streams of the class torch.cuda.Stream.
    module = torch.get_device_module(device)
    return getattr(module, "Stream", torch.Stream)(device=device)


#: For each function of ``torch._C``: functions that return the arguments of one call. Their
#: parameters are two devices a and b, which may be equal, and the ordinals i and j of a and b.
CALLS = {
    "_broadcast": [
        lambda a, b, i, j: (arange(2, 3), [i, j]),
        lambda a, b, i, j: (arange(2, 3).to(a), [i, j]),
        lambda a, b, i, j: (arange(2, 3).to(b), [i, i, j]),
        lambda a, b, i, j: (channels_last(2, 3, 4, 5).to(a), [j, i]),
        lambda a, b, i, j: (requiring_grad(arange(3)), [i, j]),
        lambda a, b, i, j: (arange(3, dtype=torch.complex64), [i]),
        lambda a, b, i, j: (sparse(2).to(a), [i, j]),
        lambda a, b, i, j: (sparse(2), [i, j]),
        lambda a, b, i, j: (arange(3), []),
        lambda a, b, i, j: (arange(3), [i, -1]),
    ],
    "_broadcast_out": [
        lambda a, b, i, j: (arange(2, 3), [arange(2, 3).to(a), arange(2, 3).to(b)]),
        lambda a, b, i, j: (arange(2, 3).to(a), [arange(3, 2).to(b).t()]),
        lambda a, b, i, j: (arange(3), [arange(3, dtype=torch.int16).to(a)]),
        lambda a, b, i, j: (requiring_grad(arange(3)), [arange(3).to(a)]),
        lambda a, b, i, j: (arange(3), [requiring_grad(arange(3).to(a))]),
        lambda a, b, i, j: (sparse(2), [sparse(1).to(a)]),
        lambda a, b, i, j: (arange(3), []),
        lambda a, b, i, j: (arange(3), [arange(3).to(a), arange(3)]),
        lambda a, b, i, j: (arange(3), [arange(3).to(a), arange(1, 3).to(b)]),
    ],
    "_broadcast_coalesced": [
        lambda a, b, i, j: ([arange(3).to(a), arange(2, 2).to(a)], [i, j], 1 << 20),
        lambda a, b, i, j: ([arange(3).to(a), arange(2, 2).to(a)], [i, j], 0),
        lambda a, b, i, j: ([arange(2).to(a) for _ in range(5)], [i, j], 17),
        lambda a, b, i, j: ([channels_last(2, 3, 4, 5).to(a)], [i, j], 1 << 20),
        lambda a, b, i, j: (
            [requiring_grad(arange(3).to(a)), arange(0, 4).to(a)],
            [i, j],
            1 << 20,
        ),
        lambda a, b, i, j: ([arange(3).to(a), arange(3).to(a).long()], [i, j, i], 1 << 20),
        lambda a, b, i, j: ([sparse(2).to(a), sparse(3).to(a), arange(1).to(a)], [i, j], 48),
        lambda a, b, i, j: ([sparse(2).coalesce().to(a)], [i, j], 1 << 20),
        lambda a, b, i, j: ([], [i, j], 1 << 20),
        lambda a, b, i, j: ([arange(3)], [i, j], 1 << 20),
        lambda a, b, i, j: ([arange(3).to(a)], [i, -1], 1 << 20),
    ],
    "_scatter": [
        lambda a, b, i, j: (arange(5, 2), [i, j], None, 0, None),
        lambda a, b, i, j: (arange(5, 2), [i, j, i, j], None, 0, None),
        lambda a, b, i, j: (arange(5, 6).to(a), [i, j], [0, 6], -1, None),
        lambda a, b, i, j: (arange(6, 4).t(), [i, j], None, 0, None),
        lambda a, b, i, j: (arange(1, 4).expand(4, 4), [i, j], None, 0, None),
        lambda a, b, i, j: (channels_last(4, 3, 5, 5), [i, j], None, 0, None),
        lambda a, b, i, j: (requiring_grad(arange(4)), [i, j], None, 0, None),
        lambda a, b, i, j: (requiring_grad(arange(4).to(a)), [i, j], None, 0, None),
        lambda a, b, i, j: (arange(4), [i, j], None, 0, [stream(a), None]),
        lambda a, b, i, j: (arange(4), [-1], None, 0, None),
        lambda a, b, i, j: (arange(4).to(a), [-1], None, 0, None),
        lambda a, b, i, j: (arange(4), [], None, 0, None),
        lambda a, b, i, j: (arange(4), [i], [1, 3], 0, None),
        lambda a, b, i, j: (arange(4), [i], None, 1, None),
        lambda a, b, i, j: (arange(), [i], None, 0, None),
        lambda a, b, i, j: (arange(), [i], [1], 0, None),
        lambda a, b, i, j: (arange(4), [i, j], [-1, 5], 0, None),
        lambda a, b, i, j: (arange(4), [i, j], [1, 1], 0, None),
        lambda a, b, i, j: (arange(4), [i], None, 0, [3]),
        lambda a, b, i, j: (arange(4), [i], None, 0, 3),
        lambda a, b, i, j: (sparse(3), [i, j], None, 0, None),
    ],
    "_scatter_out": [
        lambda a, b, i, j: (arange(4, 4), [arange(1, 4).to(a), arange(3, 4).to(b)], 0, None),
        lambda a, b, i, j: (arange(4, 4), [arange(4, 4).to(a).t().int()], 0, None),
        lambda a, b, i, j: (requiring_grad(arange(4)), [arange(4).to(a)], 0, [stream(a)]),
        lambda a, b, i, j: (arange(4), [requiring_grad(arange(4).to(a))], 0, None),
        lambda a, b, i, j: (arange(4), [], 0, None),
        lambda a, b, i, j: (arange(4), [arange(4).to(a)], 1, None),
        lambda a, b, i, j: (arange(4), [arange(4)], 0, None),
        lambda a, b, i, j: (arange(4, 4), [arange(1, 2, 4).to(a)], -2, None),
        lambda a, b, i, j: (arange(4), [arange(2).to(a), arange(1).to(b)], 0, None),
    ],
    "_gather": [
        lambda a, b, i, j: ([arange(2, 5).to(a), arange(1, 5).to(b)], 0, None),
        lambda a, b, i, j: ([arange(2, 5).to(a), arange(2, 1).to(b)], -1, -1),
        lambda a, b, i, j: (
            [channels_last(2, 3, 4, 5).to(a), channels_last(2, 3, 4, 5).to(b)],
            0,
            j,
        ),
        lambda a, b, i, j: ([channels_last(2, 3, 4, 5).to(a), arange(2, 3, 4, 5).to(b)], 0, i),
        lambda a, b, i, j: ([arange(2, 5).to(a).t()], 0, i),
        lambda a, b, i, j: ([arange(2).to(a).int(), arange(2).to(b) / 2], 0, i),
        lambda a, b, i, j: ([requiring_grad(arange(2).to(a))], 0, i),
        lambda a, b, i, j: ([], 0, i),
        lambda a, b, i, j: ([arange(2).to(a)], 1, i),
        lambda a, b, i, j: ([arange(2).to(a), arange(2)], 0, i),
        lambda a, b, i, j: ([arange(2).to(a), arange(2, 1).to(b)], 0, i),
        lambda a, b, i, j: ([arange(2, 5).to(a), arange(2, 4).to(b)], 0, i),
        lambda a, b, i, j: ([arange().to(a)], 0, i),
        lambda a, b, i, j: ([sparse(2).to(a)], 0, i),
    ],
    "_gather_out": [
        lambda a, b, i, j: ([arange(2).to(a), arange(1).to(b)], arange(3), 0),
        lambda a, b, i, j: ([arange(2, 5).to(a)], arange(5, 2).double().to(b).t(), 0),
        lambda a, b, i, j: ([requiring_grad(arange(2).to(a))], arange(2), 0),
        lambda a, b, i, j: ([arange(2).to(a)], requiring_grad(arange(2)), 0),
        lambda a, b, i, j: ([arange(2).to(a)], arange(3), 0),
        lambda a, b, i, j: ([arange(2)], arange(2), 0),
        lambda a, b, i, j: ([], arange(2), 0),
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


def run(primitive, call, first, second):
    """Run ``call``; return the `facts` of its arguments and results, or the error if it fails."""
    args = call(first, second, first.index, second.index)
    try:
        result = primitive(*args)
    except RuntimeError as error:
        return [type(error), message_of(error), *facts(args)]
    except IndexError as error:
        return [type(error), message_of(error)]
    # The primitives do not wait for the streams that a call passes to them.
    for device in (first, second):
        torch.accelerator.synchronize(device)
    return facts([args, result])


def message_of(error):
    # Ignore spaces, which differ between releases, and the backtrace after the first line.
    return str(error).split("\n", 1)[0].replace(" ", "")


@every_call
@pytest.mark.parametrize("second", [0, 1], ids=["repeated-device", "two-devices"])
def test_stand_in_agrees_with_cuda(topology, name, call, second):
    if getattr(torch._C, name) is STAND_INS[name] or topology.accelerator != "cuda":
        not_run(f"torch._C.{name} needs a CUDA build of PyTorch and a CUDA device")
    topology.require(distinct=1 + second)
    devices = topology.device(0), topology.device(second)
    is_nccl_possible = second and name in ("_broadcast", "_broadcast_out")
    dropped = NCCL_FACTS if is_nccl_possible else ()
    real = run(getattr(torch._C, name), call, *devices)
    stand_in = run(STAND_INS[name], call, *devices)
    assert drop_facts(stand_in, dropped) == drop_facts(real, dropped)
