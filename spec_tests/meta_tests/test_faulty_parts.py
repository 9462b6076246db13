"""Whole runs on devices that misbehave, and of targets that do: the suite names what is wrong."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("sim")
ROOT = Path(__file__).resolve().parents[2]
PARTS = "spec_tests.meta_tests.faulty_parts"

#: What a target gets wrong: the name replaced, by what, the clause that fails, and its words.
BUGS = {
    "zero-is-current": (
        "comm.broadcast",
        "broadcast_to_current",
        "comm.devices.whichever-is-current",
        "device(type='sim', index=0)",
    ),
    "device-left": (
        "comm.gather",
        "gather_and_stay",
        "comm.devices.current-device-kept",
        "assert 2 == 0",
    ),
    "missing-primitives": (
        "comm.scatter",
        "scatter_by_primitive",
        "comm.scatter.slices",
        "module 'torch._C' has no attribute '_scatter'",
    ),
    "dirty-memory": ("comm.reduce_add", "reduce_add_to_fresh", "comm.reduce-add.sum", "nan"),
    "dirty-memory, in backward": (
        "functions.Scatter",
        "ScatterToFresh",
        "functions.scatter.gradient-of-unused-chunks",
        "[2.0, nan, nan]",
    ),
    "no-memory": (
        "comm.scatter",
        "scatter_to_where_there_is_memory",
        "comm.no-memory",
        "DID NOT RAISE",
    ),
    "no-memory, in a replica": (
        "parallel_apply.parallel_apply",
        "parallel_apply_of_any_error",
        "parallel_apply.errors.no-memory",
        "RuntimeError: Caught OutOfMemoryError in replica 0 on device 0.",
    ),
    "garbled-peers": (
        "comm.gather",
        "gather_without_peers",
        "comm.gather.joined",
        "0.",
    ),
}
#: Bugs of streams that PyTorch has had, by the number of the public thread.
BUGS |= {
    "78824": (
        "parallel_apply.parallel_apply",
        "parallel_apply_on_default_streams",
        "parallel_apply.queue-order",
        "remedy  let the default stream of sim:0 wait for stream",
    ),
    "16966": (
        "functions.Scatter",
        "ScatterWithoutWait",
        "functions.scatter.cpu-input-is-ready",
        "remedy  let the default stream of sim:0 wait for stream",
    ),
    "18465": (
        "functions.Scatter",
        "ScatterWithoutRecord",
        "functions.scatter.cpu-input-may-be-freed",
        "before the last reference goes, tensor.record_stream(the default stream of sim:0)",
    ),
}
#: The fault that must be on for the bug to show; the others' effects are the targets' own.
SWITCH = {"missing-primitives": ["--fault=missing-primitives"]}
#: What fresh memory holds without the detector is what it held before; the fault says what.
SWITCH |= {name: ["--no-races", "--fault=dirty-memory"] for name in BUGS if "dirty" in name}

#: Faults that make the machine one on which nothing can be judged.
MACHINES = {
    "zero-is-current": "machine broken: with sim:1 current, a tensor for sim:0 is on sim:1",
    "device-left": "changes the current device. No implementation can be judged here",
    "no-memory": "has no memory left (sim out of memory: sim:0 has none left)",
    "garbled-peers": "64 bytes copied from sim:0 to sim:1 arrived with other values",
}


@pytest.fixture
def judge(fork_server):
    """Run the tests of a clause; return the exit status and what is printed."""

    def run(clause, *options):
        chapter = f"spec_tests/{clause.partition('.')[0]}"
        command = ["pytest", chapter, "--accelerator=sim", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["--hypothesis-profile=few", f"--clause={clause}", *options]
        done = fork_server.run(*command, cwd=ROOT, env=os.environ)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("name", BUGS)
def test_a_target_with_the_bug_fails_by_name(judge, name):
    replaced, part, clause, words = BUGS[name]
    mapped = f"--target-map={replaced}={PARTS}:{part}"
    status, text = judge(clause, mapped, *SWITCH.get(name, []))
    assert status == 1, text
    assert f"fail  {clause}" in text
    assert words in text


@pytest.mark.parametrize("name", SWITCH)
def test_a_target_without_the_bug_passes_all_the_same(judge, name):
    status, text = judge(BUGS[name][2], *SWITCH[name])
    assert status == 0, text


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_with_the_fault_ends_the_run_by_name(judge, name):
    status, text = judge("comm.signatures", f"--fault={name}")
    assert status == 3
    assert MACHINES[name] in text


def test_the_bug_does_not_show_where_the_primitives_are(judge):
    replaced, part, clause, _ = BUGS["missing-primitives"]
    status, text = judge(clause, f"--target-map={replaced}={PARTS}:{part}")
    assert status == 0, text
