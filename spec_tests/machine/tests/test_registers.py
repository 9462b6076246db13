"""Registers: verdicts of tests with a record, declared missing names, and refused registers."""

import json
import re
from importlib import metadata

import pytest

from spec_tests.machine import clauses, register
from spec_tests.machine.target import Target
from spec_tests.machine.tests.fixtures import ROOT
from spec_tests.machine.tests.small_suite import CLAUSES, RECORD, TWO_TESTS
from spec_tests.machine.verdict_file import read

pytest_plugins = ["pytester"]
REGISTERS = sorted(register.FOLDER.rglob("*.toml"))


def record(fact="assert: False", versions="torch>=2.11", test="test_one"):
    """Return a register with one record."""
    return RECORD.format(test=test, fact=fact).replace("torch>=2.11", versions)


#: A name of torch.nn.parallel that impl lacks.
NAME = "comm.nccl"
MISSING_NAME = f"target.{NAME}"
PASSING = TWO_TESTS.format(one="True", two="pass")
FAILING = TWO_TESTS.format(one="False", two="pass")
ONE_MISSING = TWO_TESTS.format(one=MISSING_NAME, two="pass")
TWO_MISSING = TWO_TESTS.format(one=MISSING_NAME, two=MISSING_NAME)
#: A suite with a test of several cases, and another test.
CASES = """
@clause("a.one")
@pytest.mark.parametrize("case", {})
def test_one(target, case): {}
@clause("a.two")
def test_two(target): pass
"""
ONE_OF_THREE_MISSING = CASES.format(["scatter", "nccl"], "getattr(target.comm, case)")
#: Two of the three cases pass; the verdicts if the register knows the other one.
THREE_CASES = CASES.format([0, 1, 2], "assert case")
CASES_JUDGED = {
    **{"test_one[0]": "known", "test_one[1]": "pass", "test_one[2]": "pass"},
    "test_two": "pass",
}
DECLARED = "not offered, as the register declares: "
OK, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
#: For each case: a suite, the declared names, the exit status, and a printed text.
LACKING = {
    "declared": (TWO_MISSING, [NAME], OK, f"{DECLARED}2 clauses ({NAME})"),
    "not-declared": (TWO_MISSING, ["comm.warnings"], FAILED, "not-offered  a.two"),
    "some-tests-pass": (ONE_OF_THREE_MISSING, [NAME], OK, DECLARED),
    "a-test-fails": (
        ONE_OF_THREE_MISSING.replace("getattr", "assert not getattr"),
        [NAME],
        FAILED,
        "fail  a.one",
    ),
}
#: For each case: what its test asserts, the fact and the versions of its record, the verdict, and
#: a text that is printed.
JUDGED = {
    "as_recorded": ("False", "assert: False", "torch>=2.11", "known", ""),
    "passes": ("True", "assert: False", "torch>=2.11", "fail", "X-1 names this test, but the te"),
    "other_kind": ("False", "error: KeyError: x", "torch>=2.11", "fail", "expects 'error: KeyErr"),
    "error": ("1 / 0", "error: ZeroDivisionError: division", "torch>=2.11", "known", ""),
    "other_error": ("1 / 0", "error: ZeroDivisionError: mod", "torch>=2.11", "fail", "but the fa"),
    "other_version": ("True", "assert: False", "torch<2", "pass", ""),
    "missing_name": (MISSING_NAME, f"not offered: {NAME}", "torch>=2.11", "known", ""),
}
WITHOUT_DEFAULTS = re.sub("(kind|versions) = .*\n", "", record())
INHERITS = 'inherits = "base"\n'
ABSENT = "names a test that does not exist: test_it.py::"
#: For each case: a register that may inherit the default record as `base`, and the tests of the
#: records that apply.
LOADED = {
    "keys-of-all-records": (f'kind = "fix"\nversions = "torch<2"\n{WITHOUT_DEFAULTS}', []),
    "without-kind-and-observed": (
        re.sub("(kind|observed) = .*\n", "", record()),
        ["test_it.py::test_one"],
    ),
    "inherited": (INHERITS, ["test_it.py::test_one"]),
    "repaired": (f'{INHERITS}repaired = ["test_it.py::test_one"]', []),
}
#: For each case: a register, and the error that refuses it.
REFUSED = {
    "unknown-clause": (record().replace("a.one", "a.onne"), "a.onne; did you mean a.one?"),
    "unknown-test": (record(test="test_three"), f"{ABSENT}test_three; `parallel-conformance draf"),
    "unknown-parameter": (record(test="test_one[2]"), f"{ABSENT}test_one[2]; remove it "),
    "unknown-package": (record(versions="no-such-package>=1"), "package is not installed"),
    "no-tests": (record().replace('"test_it.py::test_one"', ""), "there are no tests"),
    "only-a-class": (
        record("error: KeyError"),
        "'error: KeyError' does not say what the error is",
    ),
    "earlier-suite": (
        re.sub("expects = .*\n", "", record()),
        "it lacks 'expects'. Run the suite ",
    ),
    "lacks-after-the-record": (f"{record()}lacks = []", "no record has the key 'lacks'; keys of "),
    "misspelt-key-of-a-record": (
        record().replace("expects", "expcts"),
        "no record has the key 'expcts'; did you mean expects?",
    ),
    "unknown-key": ("foo = 1", "no register has the key 'foo'"),
    "misspelt-key": ("lack = []", "no register has the key 'lack'; did you mean lacks?"),
    "repaired-without-a-record": (
        f'{INHERITS}repaired = ["test_it.py::test_x"]',
        "no inherited record names test_it.py::test_x",
    ),
    "inherits-itself": ('inherits = "own"', "the suite has no other register 'own'"),
    "inherits-a-file": ('inherits = "../base"', "the suite has no other register '../base'"),
    "lacks-an-unknown-part": ('lacks = ["a.one"]', 'lacks "a.one": a name begins with one of '),
    "lacks-a-part-that-exists": ('lacks = ["comm"]', "lacks comm: the target has these names; "),
}


@pytest.fixture
def run_with_register(run_suite, pytester):
    """Return a function that runs tests with a register, and reads the verdicts by test."""

    def run(body, text, *options):
        pytester.path.joinpath("own.toml").write_text(text)
        path = pytester.path / "verdicts.jsonl"
        result = run_suite(body, "--divergences=own.toml", f"--verdicts={path}", *options)
        return result, {each.test.partition("::")[2]: each.verdict for each in read(path)}

    return run


@pytest.fixture
def folder(tmp_path):
    """Write the small suite and the register ``base``; return their folder."""
    (tmp_path / "test_it.py").write_text(PASSING)
    (tmp_path / "clauses.toml").write_text(CLAUSES)
    (tmp_path / "base.toml").write_text(record())
    return tmp_path


def test_a_test_with_a_record_has_the_verdict(run_with_register):
    test = '@clause("a.one")\ndef test_{}(target): assert {}\n'
    body = "".join(test.format(name, expression) for name, (expression, *_) in JUDGED.items())
    body += '@clause("a.two")\ndef test_two(target): pass\n'
    records = (record(*each[1:3], test=f"test_{name}") for name, each in JUDGED.items())
    result, found = run_with_register(body, "".join(records))
    expected = {f"test_{name}": verdict for name, (*_, verdict, _) in JUDGED.items()}
    assert found == {**expected, "test_two": "pass"}
    assert result.ret == FAILED
    for *_, printed in JUDGED.values():
        assert printed in result.stdout.str()


@pytest.mark.parametrize("case", LOADED)
def test_records_that_apply_are_own_and_inherited_ones(folder, case):
    text, expected = LOADED[case]
    (folder / "own.toml").write_text(text)
    records = register.load(folder / "own.toml", folder=folder)
    assert [test for each in records if each.applies for test in each.tests] == expected


def test_repaired_excepts_single_cases_of_an_inherited_record(run_with_register, pytester):
    pytester.mkdir("registers").joinpath("base.toml").write_text(record("assert: case"))
    passing = [f"test_it.py::test_one[{number}]" for number in (1, 2)]
    result, found = run_with_register(THREE_CASES, INHERITS)
    assert found == {**CASES_JUDGED, "test_one[1]": "fail", "test_one[2]": "fail"}
    for test in passing:
        assert f"add '{test}' to `repaired` of own.toml" in result.stdout.str()
    result, found = run_with_register(THREE_CASES, f"{INHERITS}repaired = {json.dumps(passing)}")
    assert found == CASES_JUDGED
    assert result.ret == OK


@pytest.mark.parametrize("key", ["tests", "repaired"])
def test_an_unknown_case_of_a_collected_test_is_refused(run_with_register, pytester, key):
    base, unknown = record("assert: case"), "test_it.py::test_one[9]"
    pytester.mkdir("registers").joinpath("base.toml").write_text(base)
    text = base + record("assert: case", test="test_one[9]").replace("X-1", "X-2")
    if key == "repaired":
        text = f'{INHERITS}repaired = ["{unknown}"]'
    result, _ = run_with_register(THREE_CASES, text, "--clause=a.one")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"names a test that does not exist: {unknown}; remove it" in result.stderr.str()
    assert run_with_register(THREE_CASES, text, "-k", "test_one[0]")[0].ret == OK


def test_recorded_selects_the_clauses_of_the_register(run_with_register):
    body = TWO_TESTS.format(one="False", two="pass")
    result, found = run_with_register(body, record(), "--recorded")
    assert found == {"test_one": "known"}
    assert result.ret == OK
    result, _ = run_with_register(body, record(), "--recorded", "--clause=a.two")
    assert "the register has no record of these clauses" in result.stderr.str()


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_register_is_refused_with_its_name(folder, case):
    text, error = REFUSED[case]
    path = folder / "own.toml"
    path.write_text(text)
    with pytest.raises((pytest.UsageError, ValueError)) as caught:
        _check(path, folder)
    assert error in str(caught.value)


def _check(path, folder):
    """Check a register as a run on impl does."""
    records = register.load(path, clauses.load(folder), folder)
    register.require_expects(records)
    assert all(record.applies for record in records)
    register.assign_records([], records, folder, whole=True)
    register.require_missing(register.load_lacks(path), Target("impl"), path)


@pytest.mark.parametrize("case", LACKING)
def test_a_run_judges_tests_of_the_declared_names(run_with_register, case):
    body, names, status, printed = LACKING[case]
    result, _ = run_with_register(body, f"lacks = {json.dumps(names)}")
    assert result.ret == status
    assert printed in result.stdout.str()


def test_declarations_are_not_inherited_from_another_register(folder):
    (folder / "other.toml").write_text(f'lacks = ["{NAME}"]')
    (folder / "own.toml").write_text('inherits = "other"')
    assert register.load_lacks(folder / "own.toml") == []


def test_a_resumed_run_lists_clauses_declared_in_the_former_run(run_with_register):
    lacks = f'lacks = ["{NAME}"]'
    assert run_with_register(ONE_MISSING, lacks)[0].ret == OK
    result, _ = run_with_register(ONE_MISSING, lacks, "--resume")
    assert result.ret == OK
    assert f"{DECLARED}1 clause ({NAME})" in result.stdout.str()


#: For each case: a suite, the registers of a run and of the run that resumes it, and whether this
#: one runs the failing test again.
CHANGED = {
    "the-same": (FAILING, record(), record(), False),
    "added": (FAILING, "", record(), True),
    "removed": (FAILING, record(), "", True),
    "other-facts": (FAILING, record(), record("assert: None"), True),
    "stale-removed": (PASSING, record(), "", True),
    "stale": (PASSING, record(), record(), False),
    "added-of-a-passing-test": (PASSING, "", record(), True),
    "declared": (ONE_MISSING, "", f'lacks = ["{NAME}"]', True),
    "no-longer-declared": (ONE_MISSING, f'lacks = ["{NAME}"]', "", True),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_resumed_run_has_the_verdicts_of_its_own_register(run_with_register, case):
    body, before, after, is_run_again = CHANGED[case]
    run_with_register(body, before)
    result, found = run_with_register(body, after, "--resume")
    text = "tests that run again, because the register has changed: 1"
    assert (text in result.stdout.str()) == is_run_again
    assert ("no test was run" in result.stdout.str()) != is_run_again
    whole, expected = run_with_register(body, after)
    assert (found, result.ret) == (expected, whole.ret)


@pytest.mark.parametrize("path", REGISTERS, ids=lambda path: path.stem)
def test_every_register_names_tests_and_clauses_that_exist(path):
    # A run with one of these registers would refuse it, too, but such runs are rare.
    known = clauses.load()
    records = register.load(path, known)
    register.assign_records([], records, ROOT / "spec_tests", whole=False)
    if path.parent == register.FOLDER:  # Those of back ends may be of an earlier suite.
        register.require_expects(records)
    register.load_lacks(path)


@pytest.mark.parametrize(
    ("installed", "requirement", "expected"),
    [
        ("2.13.0", "torch>=2.11", True),
        ("2.13.0", "torch>=2.11,<2.13", False),
        ("2.13.0+cpu", "torch==2.13.0", True),
        ("2.16.0.dev20261120+cpu", "torch>=2.16", True),
        ("2.16.0.dev20261120+cpu", "torch>=2.11,<2.16", False),
        ("2.16.0rc1", "torch>=2.16", True),
        ("2.11.0a0+git0123456", "torch>=2.11", True),
    ],
)
def test_pre_releases_and_local_versions_count_as_their_release(
    monkeypatch, installed, requirement, expected
):
    monkeypatch.setattr(metadata, "version", {"torch": installed}.__getitem__)
    assert register.is_satisfied(requirement) is expected
