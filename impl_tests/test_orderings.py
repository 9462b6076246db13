"""The deletions of ``tox -e orderings`` are real programs, and no place is overlooked."""

import ast
import re

import pytest

from impl_tests.orderings import ORDERING, ROOT, TESTS, deletions

DELETIONS = list(deletions())
CALL = re.compile(
    rf"(?<!def )\b({'|'.join(sorted(ORDERING))})\(|@({'|'.join(ORDERING)})\b"
    r"|current\.close\(|non_blocking=(?!True)"
)
#: What a name has that orders work on devices, and names that have it and order none.
ORDERS = re.compile(r"wait_|synchron|record_|event|query|set_stream|use_stream", re.IGNORECASE)
ORDERS_NOTHING = {"record_function", "get_running_loop"}


def _paths(package):
    return sorted((ROOT / package).rglob("*.py"))


def _called(package):
    """The last names of all that the package calls."""
    for path in _paths(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield ast.unparse(node.func).rpartition(".")[2]


@pytest.mark.parametrize("deletion", DELETIONS, ids=[each.place for each in DELETIONS])
def test_what_is_left_is_a_program(deletion):
    ast.parse(deletion.source)
    assert deletion.source != (ROOT / deletion.path).read_text()


@pytest.mark.parametrize("package", TESTS)
def test_every_call_is_left_out_once(package):
    written = sum(len(CALL.findall(path.read_text())) for path in _paths(package))
    assert written == sum(deletion.package == package for deletion in DELETIONS) > 0


@pytest.mark.parametrize("package", TESTS)
def test_no_other_call_orders_work_on_devices(package):
    ordering = {name for name in _called(package) if ORDERS.search(name)}
    assert ordering
    assert ordering <= ORDERING | ORDERS_NOTHING
