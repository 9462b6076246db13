"""The oracle finds bugs that target and reference share, and needs no torch.nn.parallel."""

import pytest
from torch import nn

from spec_tests import checks
from spec_tests.machine.target import Part, Target
from spec_tests.oracle.tests.without_reference import ERROR_TEXT
from spec_tests.strategies.calls import ApplyCall, DeviceAt, KeywordCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.data_parallel import DataParallelCall, NewModule
from spec_tests.strategies.modules import Layer, ModuleSpec
from spec_tests.strategies.parallel_apply import OrderedModules
from spec_tests.strategies.replicate import ReplicateCall

parallel = nn.parallel


def scatter(*args, **kwargs):
    return tuple(parallel.comm.scatter(*args, **kwargs))[::-1]


def gather(outputs, *args, **kwargs):
    return parallel.gather(outputs[::-1], *args, **kwargs)


def reduce_add(inputs, *args, **kwargs):
    return parallel.comm.reduce_add([*inputs, inputs[0]], *args, **kwargs)


def replicate(*args, **kwargs):
    return [replica.eval() for replica in parallel.replicate(*args, **kwargs)]


def parallel_apply(*args, **kwargs):
    return parallel.parallel_apply(*args, **kwargs)[::-1]


def data_parallel(*args, **kwargs):
    return -parallel.data_parallel(*args, **kwargs)


class Broadcast:
    @staticmethod
    def apply(devices, *tensors):
        return parallel._functions.Broadcast.apply(devices, *[tensors[0]] * len(tensors))


TWO = [DeviceAt(0), DeviceAt(1)]
X, Y = dense(), dense(slot=1)
#: For each function: a call for which the function of this file with its name is wrong.
CALLS = {
    "comm.scatter": KeywordCall("comm.scatter", {"tensor": X, "devices": TWO}),
    "comm.reduce_add": KeywordCall(
        "comm.reduce_add", {"inputs": [X, Y], "destination": DeviceAt(0)}
    ),
    "functions.Broadcast": ApplyCall("Broadcast", (TWO,), (X, dense((2,)))),
    "scatter_gather.gather": KeywordCall(
        "scatter_gather.gather",
        {"outputs": [(X,), (dense((2, 3), 1),)], "target_device": DeviceAt(0)},
    ),
    "replicate.replicate": ReplicateCall(ModuleSpec((Layer("linear"),)), (0, 1)),
    "parallel_apply.parallel_apply": KeywordCall(
        "parallel_apply.parallel_apply", {"modules": OrderedModules((0, 1), {}), "inputs": [1, 2]}
    ),
    "data_parallel.data_parallel": DataParallelCall(
        NewModule(nn.Tanh), (X,), {}, TWO, functional=True
    ),
}
#: One clause of each chapter.
SAMPLE = (
    "comm.scatter.slices",
    "functions.gather.joined",
    "scatter_gather.scatter.nested",
    "replicate.structure",
    "parallel_apply.errors.lowest-index",
    "data_parallel.devices",
    "divergences.SG-8",
)


@pytest.mark.parametrize("name", CALLS)
def test_oracle_finds_a_bug_that_target_and_reference_share(oracle, reference, topology, name):
    part, _, function = name.partition(".")
    wrong = Target("torch.nn.parallel")
    setattr(wrong, part, Part(part, getattr(wrong, part)._module, {function: globals()[function]}))
    checks.agree(CALLS[name], reference, [oracle, reference], topology)
    checks.agree(CALLS[name], wrong, wrong, topology)
    with pytest.raises(AssertionError, match=r"target and spec_tests\.oracle disagree"):
        checks.agree(CALLS[name], wrong, [oracle, wrong], topology)


def run_with_torch_nn_parallel_removed(run_command, clauses, *options):
    command = ["run", "impl", "--accelerator=sim", *(f"--clause={name}" for name in clauses)]
    plugin = ["-p", "spec_tests.oracle.tests.without_reference"]
    return run_command(*command, *options, "--", "--hypothesis-profile=few", *plugin)


@pytest.mark.slow
def test_a_run_without_reference_uses_no_torch_nn_parallel(run_command):
    done = run_with_torch_nn_parallel_removed(run_command, SAMPLE, "--reference=none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reference: none" in done.stdout


@pytest.mark.slow
def test_a_run_with_the_reference_uses_torch_nn_parallel(run_command):
    done = run_with_torch_nn_parallel_removed(run_command, SAMPLE[:1])
    assert done.returncode == 1
    assert ERROR_TEXT in done.stdout
