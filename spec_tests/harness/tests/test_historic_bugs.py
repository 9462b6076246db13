"""The suite finds historic bugs of targets, and names faults of devices."""

import os

import pytest

from spec_tests.harness.conformance import clauses
from spec_tests.harness.tests.fixtures import ROOT

pytestmark = [pytest.mark.usefixtures("sim"), pytest.mark.machinery]
FUNCTIONS = "spec_tests.harness.tests.historic_bugs"

#: For each bug: the replaced function, the buggy function, the clause that fails, and a text that
#: the failing run prints.
BUGS = {
    "missing-primitives": (
        "comm.scatter",
        "scatter_by_private_function",
        "comm.scatter.slices",
        "module 'torch._C' has no attribute '_scatter'",
    ),
    "dirty-memory": ("comm.reduce_add", "reduce_add_into_empty", "comm.reduce-add.sum", "nan"),
}
#: The pytest options without which the bugs have no effect. The race detector fills new memory
#: with NaN, too; without --no-races the fault would not be tested.
OPTIONS = {
    "missing-primitives": ["--fault=missing-primitives"],
    "dirty-memory": ["--no-races", "--fault=dirty-memory"],
}


@pytest.fixture
def run_clause(fork_server):
    """Return a function that runs a clause's tests and returns the exit status and the output."""

    def run(clause, *options):
        chapter = f"spec_tests/{clauses.load()[clause].chapter}"
        command = ["pytest", chapter, "--accelerator=sim", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["--hypothesis-profile=few", f"--clause={clause}", *options]
        done = fork_server.run(*command, cwd=ROOT, env=os.environ)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("name", BUGS)
def test_target_with_a_historic_bug_fails_the_clause(run_clause, name):
    replaced, function, clause, message = BUGS[name]
    mapped = f"--target-map={replaced}={FUNCTIONS}:{function}"
    status, text = run_clause(clause, mapped, *OPTIONS[name])
    assert status == 1, text
    assert f"fail  {clause}" in text
    assert message in text


@pytest.mark.parametrize("name", OPTIONS)
def test_target_without_the_bug_passes_on_faulty_devices(run_clause, name):
    status, text = run_clause(BUGS[name][2], *OPTIONS[name])
    assert status == 0, text


def test_the_header_names_a_fault_of_the_devices(run_clause):
    status, text = run_clause("comm.signatures", "--fault=garbled-peers", "-v")
    assert status == 0
    assert "devices: devices.copies.values: wrong: 64 bytes copied from sim:0 to sim:1" in text
