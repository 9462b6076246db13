"""impl_tests.wrong: the table of perturbations is complete, and the suite notices a sample."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from impl_tests.wrong import DEVICES, FAULT, Perturbation, facts, load, wrapping
from impl_tests.wrong.__main__ import main
from impl_tests.wrong.kinds import KINDS
from impl_tests.wrong.kinds.calls import LEFT
from spec_tests import simulator
from spec_tests.harness.conformance import clauses

ROOT = Path(__file__).resolve().parents[1]
TABLE = load()
FUNCTIONS = dict(wrapping.signatures("impl"))
#: The words after the colon of a kind.
WORDS = {
    "parameters": KINDS.operators,
    "buffers": KINDS.operators,
    "leaves": LEFT,
    "own": ("scatter", "replicate", "parallel-apply", "gather"),
}
#: The kinds with the name of an argument after the colon.
OF_ARGUMENTS = ("ignored", "reversed", "shortened")
#: The clauses whose perturbations each test run tries; ``python -m impl_tests.wrong`` tries all.
SAMPLE = (
    "comm.scatter.own-device-views",
    "comm.gather.keeps-channels-last",
    "functions.scatter.cpu-input-is-ready",
    "scatter_gather.scatter.named-tuples",
    "devices.copies.layouts",
)


def test_every_clause_has_a_perturbation():
    assert TABLE.keys() == clauses.load().keys()


def test_function_kind_and_facts_of_a_perturbation_exist():
    assert [str(each) for each in TABLE.values() if not exists(each)] == []


def exists(perturbation):
    if perturbation.function == DEVICES:
        return perturbation.kind.removeprefix(FAULT) in simulator.FAULTS
    arguments = FUNCTIONS[perturbation.function].parameters
    kind, _, word = perturbation.kind.partition(":")
    is_kind = kind in (KINDS.detailed if word else KINDS)
    is_word = not word or word in (arguments if kind in OF_ARGUMENTS else WORDS.get(kind, [word]))
    return is_kind and is_word and all(is_fact(each, arguments) for each in perturbation.guard)


def is_fact(text, arguments):
    name, _, fact = text.rpartition(":")
    return fact in facts.ARGUMENT and name in {"self", *arguments} if name else fact in facts.CALL


def test_a_line_of_two_words_is_refused():
    with pytest.raises(ValueError, match="function kind guard"):
        Perturbation.parse("comm.scatter cloned")


def test_a_perturbation_is_written_as_it_is_read():
    text = "comm.scatter cloned devices:one&tensor:grad"
    assert str(Perturbation.parse(text)) == text


def test_the_list_has_kinds_with_descriptions_and_facts(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["wrong", "--list"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert "\ncloned  Return clones.\n" in printed
    assert " no-grad " in printed
    assert " has-empty " in printed


@pytest.mark.machinery
def test_suite_notices_a_sample_of_perturbations():
    # Start a new process: a process that has used simulated devices must not fork.
    command = [sys.executable, "-m", "impl_tests.wrong", *SAMPLE]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(SAMPLE)} clauses" in run.stdout
    assert "0 problems" in run.stdout


@pytest.mark.machinery
def test_a_perturbation_that_changes_nothing_is_a_problem(tmp_path):
    table = tmp_path / "table.toml"
    table.write_text('[clauses]\n"comm.scatter.slices" = "comm.scatter cloned dim:has-empty"\n')
    command = [sys.executable, "-m", "impl_tests.wrong", "--table", str(table)]
    command += ["comm.scatter.slices"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "SURVIVED comm.scatter.slices" in run.stdout


def test_signatures_leave_out_the_context_of_autograd():
    assert [*FUNCTIONS["functions.Gather"].parameters] == ["target_device", "dim", "inputs"]
    assert isinstance(FUNCTIONS["comm.scatter"], inspect.Signature)
