"""The text of the files of a small suite with two clauses."""

CLAUSES = '[a.one]\nsays = "one"\nbasis = "law"\n[a.two]\nsays = "two"\nbasis = "law"\n'
CONFTEST = 'pytest_plugins = ["spec_tests"]\n'
HEADER = "import pytest\nfrom spec_tests.machine.clauses import clause\n"
#: One test of each clause. ``{one}`` is the asserted expression, ``{two}`` is a statement.
TWO_TESTS = """
@clause("a.one")
def test_one(target): assert {one}
@clause("a.two")
def test_two(target): {two}
"""
#: A register with one record: a divergence from clause ``a.one`` that one test shows.
RECORD = """
[[divergence]]
id = "X-1"
kind = "target-bug"
clause = "a.one"
tests = ["test_it.py::{test}"]
expects = ["{fact}"]
observed = "o"
versions = "torch>=2.11"
"""
