"""Errors about unknown words name a similar word, or the place where the word belongs."""

import pytest

from spec_tests.cli.main import main
from spec_tests.harness.conformance import clause_filter, clauses
from spec_tests.harness.environment.topology import make_topology

pytestmark = pytest.mark.machinery


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("rum impl", "; did you mean run?"),
        ("run impl --claus=comm --acelerator sim", "; did you mean --accelerator?"),
        (
            "run impl -k foo",
            "-k foo; options of pytest go after --: parallel-conformance run impl -- -k foo",
        ),
        ("run impl --reference nome", "; did you mean none?"),
    ],
)
def test_an_error_about_an_argument_ends_with_a_hint(capsys, arguments, text):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2
    assert capsys.readouterr().err.strip().endswith(text)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("comm.scater", "; did you mean comm.scatter?"),
        ("0", ""),
    ],
)
def test_an_unknown_clause_is_answered_with_a_similar_one(capsys, name, hint):
    text = f"{name}: no clause has this name{hint}"
    assert clause_filter.describe_unknown(["comm", name], clauses.load()) == text
    assert main(["clauses", name]) == 1
    assert capsys.readouterr().err == f"{text}\n"


def test_an_unknown_accelerator_is_answered_with_the_existing_ones(topology):
    own = "" if topology.accelerator == "sim" else f"{topology.accelerator} and "
    with pytest.raises(pytest.UsageError, match=rf"this machine has {own}sim \(simulated\)"):
        make_topology("foo", None)
