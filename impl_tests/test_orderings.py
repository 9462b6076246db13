"""The deletions of ``tox -e orderings`` are real programs, and no place is overlooked."""

import ast
import re

import pytest

from impl_tests.orderings import ORDERING, ROOT, TESTS, deletions

DELETIONS = list(deletions())
CALL = re.compile(rf"(?<!def )\b({'|'.join(sorted(ORDERING))})\(|@({'|'.join(ORDERING)})\b")


@pytest.mark.parametrize("deletion", DELETIONS, ids=[each.place for each in DELETIONS])
def test_what_is_left_is_a_program(deletion):
    ast.parse(deletion.source)
    assert deletion.source != (ROOT / deletion.path).read_text()


@pytest.mark.parametrize("package", TESTS)
def test_every_call_is_left_out_once(package):
    paths = sorted((ROOT / package).glob("*.py"))
    written = sum(len(CALL.findall(path.read_text())) for path in paths)
    assert written == sum(deletion.package == package for deletion in DELETIONS) > 0
