"""The deletions of ``tox -e orderings`` are valid Python and cover all calls that order work."""

import ast
import re

import pytest

from impl_tests.orderings import CALLERS, ORDERING, ROOT, TESTS, changed_files, find_deletions

DELETIONS = list(find_deletions())
#: Matches each call, decorator and option that orders work.
CALL = re.compile(
    rf"(?<!def )\b({'|'.join(sorted(ORDERING | CALLERS))})\(|@({'|'.join(ORDERING)})\b"
    r"|current\.set\(|non_blocking=(?!True)"
)
#: Functions whose names match this pattern usually order work on devices.
ORDERING_NAME = re.compile(
    r"wait_|synchron|record_|event|query|set_stream|on_stream", re.IGNORECASE
)
#: Functions that match ORDERING_NAME but do not order work.
EXCEPTIONS = {
    "_record_of_thread",
    "record_function",
    "get_running_loop",
    "wait_for_one",  # waits for another thread
    "synchronize",  # only finds out that a device is free
}


def _called_functions(package):
    """Yield the names of the functions that the package calls."""
    for path in changed_files(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield ast.unparse(node.func).rpartition(".")[2]


@pytest.mark.parametrize("deletion", DELETIONS, ids=[each.place for each in DELETIONS])
def test_the_changed_file_parses_and_differs(deletion):
    ast.parse(deletion.source)
    assert deletion.source != (ROOT / deletion.path).read_text()


@pytest.mark.parametrize("package", TESTS)
def test_there_are_as_many_deletions_as_calls_that_synchronize(package):
    written = sum(len(CALL.findall(path.read_text())) for path in changed_files(package))
    assert written == sum(deletion.package == package for deletion in DELETIONS) > 0


def test_each_listed_name_has_a_deletion():
    text = "\n".join(each.place for each in DELETIONS)
    assert {name for name in ORDERING | CALLERS if not re.search(rf"\b{name}\b", text)} == set()


def test_tests_are_not_changed():
    assert [each.path for each in DELETIONS if "tests" in each.path.parts] == []


@pytest.mark.parametrize("package", TESTS)
def test_each_called_function_with_an_ordering_name_is_listed(package):
    ordering = {name for name in _called_functions(package) if ORDERING_NAME.search(name)}
    assert ordering
    assert ordering <= ORDERING | CALLERS | EXCEPTIONS
