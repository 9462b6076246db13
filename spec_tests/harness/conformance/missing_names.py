"""The name that a test uses and the target lacks."""

import re

import pytest

from spec_tests.harness.conformance import clauses
from spec_tests.harness.environment import target

__all__ = ["missing_name"]

#: The error for an unknown keyword argument or attribute, also in the traceback of a child
#: process. The group is the name.
_UNKNOWN_NAME = re.compile(
    r"^ *(?:TypeError: .*unexpected keyword argument|AttributeError: .*has no attribute) '(\w+)'",
    re.MULTILINE,
)


def missing_name(item: pytest.Item, error: BaseException) -> str | None:
    """Return what the target lacks if a test failed because of that, else None.

    That is a name that the suite looked up in the target, or one of the extensions of the test's
    clause.
    """
    missing = target.missing_name(error)
    if missing is not None:
        return missing
    known = clauses.load()
    extensions = {
        name
        for clause_id in clauses.clauses_of_test(item)
        if clause_id in known
        for name in known[clause_id].extensions
    }
    found = _UNKNOWN_NAME.search(f"{type(error).__name__}: {error}")
    if found and found[1] in extensions:
        return f"the target does not define the extension {found[1]}"
    return None
