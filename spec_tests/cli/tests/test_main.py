"""The command line: wrong arguments, and the command ``clauses``."""

import pytest

from spec_tests.cli.main import main

ERROR = "RuntimeError: Expected at least one output tensor to scatter to"


@pytest.mark.parametrize(
    "arguments", ["", "no_such_name", "run", "run impl -k x", "doctor -- -n 2"]
)
def test_wrong_arguments_exit_with_status_2(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("names", "printed", "absent"),
    [
        (["comm.scatter.slices"], "\n1 clause\n", "comm.gather"),
        (["comm.sc", "divergences.RE-1"], "divergences.RE-1.compiled", "divergences.RE-10."),
        (["comm.sc", "divergences.RE-1"], "comm.scatter.slices", "comm.gather"),
        (["traceback"], "parallel_apply.errors.", "comm.scatter.slices"),
        (["at least one output tensor"], "\n1 clause\n", "comm.gather"),
        (["at least one output tensor"], f"\n    raises {ERROR}\n", "violates it"),
        (["replicate.buffers.parameters"], "[law]\n    torch.nn.parallel violates it\n", "raises"),
    ],
)
def test_clauses_command_prints_the_clauses_with_the_names_or_words(
    capsys, names, printed, absent
):
    assert main(["clauses", *names]) == 0
    found = capsys.readouterr().out
    assert printed in found
    assert absent not in found


def test_clauses_command_names_a_similar_clause(capsys):
    assert main(["clauses", "comm.scater"]) == 1
    hint = "comm.scater: no clause has this name; did you mean comm.scatter?"
    assert capsys.readouterr().err == f"{hint}\n"
