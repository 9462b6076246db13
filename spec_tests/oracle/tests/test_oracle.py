"""The oracle finds bugs that target and reference share, and needs no torch.nn.parallel."""

import os

import pytest
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.tests.fixtures import ROOT
from spec_tests.oracle.tests.shared_bugs import wrong_target
from spec_tests.oracle.tests.without_reference import ERROR_TEXT
from spec_tests.strategies.calls import ApplyCall, DeviceAt, PublicCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.data_parallel import DataParallelCall, NewModule
from spec_tests.strategies.jit_modules import ScriptCall, ScriptSpec
from spec_tests.strategies.modules import Layer, ModuleSpec, ResidualSpec, SharedLayer
from spec_tests.strategies.parallel_apply import PassthroughCall
from spec_tests.strategies.replicate import ReplicateCall

TWO = [DeviceAt(0), DeviceAt(1)]
X, Y = dense(), dense(slot=1)
#: For each function in `shared_bugs`: a call for which its result is wrong.
CALLS = {
    "comm.scatter": PublicCall("comm.scatter", {"tensor": X, "devices": TWO}),
    "comm.reduce_add": PublicCall(
        "comm.reduce_add", {"inputs": [X, Y], "destination": DeviceAt(0)}
    ),
    "functions.Broadcast": ApplyCall("Broadcast", (TWO,), (X, dense((2,)))),
    "scatter_gather.gather": PublicCall(
        "scatter_gather.gather",
        {"outputs": [(X,), (dense((2, 3), 1),)], "target_device": DeviceAt(0)},
    ),
    "replicate.replicate": ReplicateCall(ModuleSpec((Layer("linear"),)), (0, 1)),
    "parallel_apply.parallel_apply": PassthroughCall((1, 2), None, (0, 1), (0, 1)),
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
    wrong = wrong_target(name)
    checks.agree(CALLS[name], reference, [oracle, reference], topology)
    checks.agree(CALLS[name], wrong, wrong, topology)
    with pytest.raises(AssertionError, match=r"target and spec_tests\.oracle disagree"):
        checks.agree(CALLS[name], wrong, [oracle, wrong], topology)


BATCH_NORM = ModuleSpec((Layer("batch_norm"),))
#: Calls for which an earlier version of the oracle was wrong.
REGRESSIONS = {
    "a module registered twice": ReplicateCall(
        ModuleSpec((ResidualSpec((Layer("linear_without_bias"), SharedLayer(0))),)),
        (0,),
        detach=True,
    ),
    "buffers of a script module": ScriptCall(ScriptSpec(BATCH_NORM, "below_python"), (0, 1)),
    # The last replica fails, because batch normalisation refuses a chunk of one row. The first
    # replica has run already, and has changed the buffers of the module.
    "a replica that fails": DataParallelCall(
        ScriptSpec(BATCH_NORM, "scripted"),
        (dense((5, 4)),),
        {},
        [DeviceAt(0), DeviceAt(1), DeviceAt(2)],
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_oracle_and_reference_agree_on_calls_that_an_earlier_oracle_got_wrong(
    oracle, reference, topology, name
):
    checks.agree(REGRESSIONS[name], oracle, [reference], topology, tolerance=checks.LAYER)


def run_with_torch_nn_parallel_removed(fork_server, clauses, *options):
    command = ["spec_tests.cli.main", "run", "impl", "--accelerator=sim"]
    command += [f"--clause={name}" for name in clauses] + list(options)
    command += [
        "--",
        "--hypothesis-profile=few",
        "-p",
        "spec_tests.oracle.tests.without_reference",
    ]
    return fork_server.run(*command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.machinery
def test_a_run_without_reference_uses_no_torch_nn_parallel(fork_server):
    done = run_with_torch_nn_parallel_removed(fork_server, SAMPLE, "--reference=none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reference: none" in done.stdout
    assert "0 clauses are tested only by comparison with torch.nn.parallel" in done.stdout


@pytest.mark.machinery
def test_a_run_with_the_reference_uses_torch_nn_parallel(fork_server):
    done = run_with_torch_nn_parallel_removed(fork_server, SAMPLE[:1])
    assert done.returncode == 1
    assert ERROR_TEXT in done.stdout
