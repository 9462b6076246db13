"""The command line: wrong arguments, and the command ``clauses``."""

import pytest

from spec_tests.cli.main import main


@pytest.mark.parametrize(
    "arguments", ["", "no_such_name", "run", "run impl -k x", "doctor -- -n 2"]
)
def test_wrong_arguments_exit_with_status_2(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2


def test_clauses_command_prints_the_clauses_with_the_given_name(capsys):
    assert main(["clauses", "comm.scatter.slices"]) == 0
    printed = capsys.readouterr().out
    assert "comm.scatter.slices" in printed
    assert printed.endswith("\n1 clause\n")
    assert main(["clauses", "comm.sc", "divergences.RE-1"]) == 0
    printed = capsys.readouterr().out
    assert "comm.scatter.slices" in printed
    assert "divergences.RE-1.compiled-once-a-device" in printed
    assert "divergences.RE-10." not in printed


def test_clauses_command_prints_and_searches_the_errors(capsys):
    assert main(["clauses", "at least one output tensor"]) == 0
    printed = capsys.readouterr().out
    error = "RuntimeError: Expected at least one output tensor to scatter to"
    assert f"\n    raises {error}\n" in printed
    assert printed.endswith("\n1 clause\n")


def test_clauses_command_searches_the_statements(capsys):
    assert main(["clauses", "traceback"]) == 0
    printed = capsys.readouterr().out
    assert "parallel_apply.errors." in printed
    assert "comm.scatter.slices" not in printed


def test_clauses_command_names_a_similar_clause(capsys):
    assert main(["clauses", "comm.scater"]) == 1
    hint = "comm.scater: no clause has this name; did you mean comm.scatter?"
    assert capsys.readouterr().err == f"{hint}\n"
