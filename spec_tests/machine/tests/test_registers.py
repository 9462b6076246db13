"""Registers: verdicts of tests with a record, declared missing names, and refused registers."""

import json
from importlib import metadata

import pytest

from spec_tests.machine import clauses, judge, register
from spec_tests.machine.tests.fixtures import ROOT
from spec_tests.machine.tests.small_suite import RECORD, TWO_TESTS

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]
REGISTERS = sorted(register.FOLDER.rglob("*.toml"))


def record(fact="assert: False", versions="torch>=2.11", test="test_one"):
    """Return a register with one record."""
    return RECORD.format(test=test, fact=fact).replace("torch>=2.11", versions)


#: A name of torch.nn.parallel that impl lacks.
NAME = "comm.nccl"
MISSING_NAME = f"target.{NAME}"
PASSING = TWO_TESTS.format(one="True", two="pass")
ONE_MISSING = TWO_TESTS.format(one=MISSING_NAME, two="pass")
TWO_MISSING = TWO_TESTS.format(one=MISSING_NAME, two=MISSING_NAME)
#: A suite of three tests. One of the two tests of ``a.one`` uses a missing name.
ONE_OF_THREE_MISSING = """
@clause("a.one")
@pytest.mark.parametrize("name", ["scatter", "nccl"])
def test_one(target, name): getattr(target.comm, name)
@clause("a.two")
def test_two(target): pass
"""
DECLARED = "not offered, as the register declares: "
OK, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
#: For each case: a suite, the declared names, options, the exit status, and a printed text.
LACKING = {
    "with-workers": (TWO_MISSING, [NAME], ["-n2"], OK, f"{DECLARED}2 clauses ({NAME})"),
    "not-declared": (TWO_MISSING, ["comm.warnings"], [], FAILED, "not-offered  a.two"),
    "some-tests-pass": (ONE_OF_THREE_MISSING, [NAME], [], OK, DECLARED),
    "a-test-fails": (
        ONE_OF_THREE_MISSING.replace("getattr", "assert not getattr"),
        [NAME],
        [],
        FAILED,
        "fail  a.one",
    ),
}
WITHOUT_VERSIONS = record().replace('versions = "torch>=2.11"\n', "")
INHERITS = 'inherits = "base"\n'
REPAIRED = f'{INHERITS}repaired = ["test_it.py::test_one"]'
#: For each case: what the test of the clause asserts, the register, the verdict, and a line of the
#: output. The register `base` has the default record.
JUDGED = {
    "fails-as-recorded": ("False", record(), "known", ""),
    "passes": ("True", record(), "fail", "X-1 names this test, but the test passes"),
    "other-kind": (
        "False",
        record("error: KeyError: x"),
        "fail",
        "X-1 expects 'error: Key",
    ),
    "error": ("1 / 0", record("error: ZeroDivisionError: division"), "known", ""),
    "other-error": (
        "1 / 0",
        record("error: ZeroDivisionError: mod"),
        "fail",
        "but the failure is",
    ),
    "other-version-passes": ("True", record(versions="torch<2"), "pass", ""),
    "other-versions-of-all-records": (
        "True",
        f'versions = "torch<2"\n{WITHOUT_VERSIONS}',
        "pass",
        "",
    ),
    "inherited-fails": ("False", INHERITS, "known", ""),
    "repaired-passes": ("True", REPAIRED, "pass", ""),
    "missing-name-as-recorded": (MISSING_NAME, record(f"not offered: {NAME}"), "known", ""),
}
#: For each case: a register, and the error that refuses it.
REFUSED = {
    "unknown-clause": (
        record().replace("a.one", "a.onne"),
        "divergence X-1: no clause has the name a.onne; did you mean a.one?",
    ),
    "unknown-parameter": (
        record(test="test_one[2]"),
        "divergence X-1 names a test that does not exist: test_it.py::test_one[2]; remove it ",
    ),
    "no-tests": (
        record().replace('"test_it.py::test_one"', ""),
        "divergence X-1: there are no tests",
    ),
    "only-a-class": (
        record("error: KeyError"),
        "divergence X-1: 'error: KeyError' does not say what the error is",
    ),
    "earlier-suite": (
        record().replace('expects = ["assert: False"]\n', ""),
        "divergence X-1 is of an earlier suite: it lacks 'expects'. Run the suite with ",
    ),
    "lacks-after-the-record": (
        record().replace("versions =", "lacks = []\nversions ="),
        "divergence X-1: no record has the key 'lacks'; keys of a register stand before it",
    ),
    "repaired-without-a-record": (
        f'{INHERITS}repaired = ["test_it.py::test_x"]',
        "no inherited record names test_it.py::test_x",
    ),
    "lacks-an-unknown-part": (
        'lacks = ["a.one"]',
        'lacks "a.one": a name begins with one of comm, ',
    ),
    "lacks-a-part-that-exists": ('lacks = ["comm"]', 'lacks "comm": the target has this name; '),
}


@pytest.fixture
def run_with_register(run_suite, pytester):
    """Return a function that runs tests with a register, and reads the verdicts by clause."""

    def run(body, text, *options):
        pytester.path.joinpath("base.toml").write_text(record())
        pytester.path.joinpath("own.toml").write_text(text)
        path = pytester.path / "verdicts.jsonl"
        options = ("--divergences=own.toml", f"--verdicts={path}", *options)
        result = run_suite(body, *options)
        lines = path.read_text().splitlines() if path.exists() else [""]
        verdicts = [json.loads(line) for line in lines[1:]]
        return result, {each["clause"]: each["verdict"] for each in verdicts if "clause" in each}

    return run


@pytest.mark.parametrize("case", JUDGED)
def test_a_test_with_a_record_has_the_verdict(run_with_register, case):
    one, text, verdict, printed = JUDGED[case]
    result, found = run_with_register(TWO_TESTS.format(one=one, two="pass"), text)
    assert found == {"a.one": verdict, "a.two": "pass"}
    assert (result.ret == pytest.ExitCode.OK) == (verdict in ("pass", "known"))
    assert printed in result.stdout.str()


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["one-process", "worker"])
def test_recorded_selects_the_clauses_of_the_register(run_with_register, workers):
    body = TWO_TESTS.format(one="False", two="pass")
    result, found = run_with_register(body, record(), "--recorded", *workers)
    assert found == {"a.one": "known"}
    assert result.ret == OK


def test_recorded_needs_a_register(run_suite):
    result = run_suite(PASSING, "--recorded")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*--recorded: the target has no register*")


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_register_is_refused_with_its_name(run_with_register, case):
    text, error = REFUSED[case]
    result, _ = run_with_register(PASSING, text)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"own.toml: {error}" in result.stderr.str()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            record(test="test_three"),
            "X-1 names a test that does not exist*test_three; `parallel-conformance draft --div",
        ),
        (
            record(versions="no-such-package>=1"),
            "versions 'no-such-package>=1': no-such-package is not installed",
        ),
    ],
    ids=["no-such-test", "no-such-package"],
)
@pytest.mark.parametrize("options", [[], ["--clause=a.one"]], ids=["all", "one-clause"])
def test_a_record_of_a_missing_test_or_package_is_refused(run_with_register, text, error, options):
    result, found = run_with_register(PASSING, text, *options)
    assert not found
    result.stderr.fnmatch_lines(f"*{error}*")


@pytest.mark.parametrize(
    ("fact", "verdict"),
    [("process: ended", "known"), ("error: RuntimeError: other", "fail")],
)
def test_a_record_may_expect_that_a_test_ends_its_process(run_with_register, fact, verdict):
    body = TWO_TESTS.format(one="__import__('os').abort()", two="pass")
    _, found = run_with_register(body, record(fact), "-n1")
    assert found == {"a.one": verdict, "a.two": "pass"}


@pytest.mark.parametrize("case", LACKING)
def test_a_run_judges_tests_of_the_declared_names(run_with_register, case):
    body, names, options, status, printed = LACKING[case]
    result, _ = run_with_register(body, f"lacks = {json.dumps(names)}", *options)
    assert result.ret == status
    assert printed in result.stdout.str()


def test_declarations_are_not_inherited_from_another_register(run_with_register, pytester):
    pytester.path.joinpath("other.toml").write_text(f'lacks = ["{NAME}"]')
    result, _ = run_with_register(ONE_MISSING, 'inherits = "other"')
    assert result.ret == FAILED


def test_a_resumed_run_lists_clauses_declared_in_the_former_run(run_with_register):
    lacks = f'lacks = ["{NAME}"]'
    assert run_with_register(ONE_MISSING, lacks)[0].ret == OK
    result, _ = run_with_register(ONE_MISSING, lacks, "--resume")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert f"{DECLARED}1 clause ({NAME})" in result.stdout.str()


@pytest.mark.parametrize("path", REGISTERS, ids=lambda path: path.stem)
def test_every_register_names_tests_and_clauses_that_exist(path):
    # A run with one of these registers would refuse it, too, but such runs are rare.
    known = clauses.load()
    records = register.load(path, known)
    judge.expect([], records, ROOT / "spec_tests", whole=False)
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
