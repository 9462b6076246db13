"""impl_tests.weekly.mutation: changes to impl."""

import ast
import re

import pytest

from impl_tests.weekly.mutation import changes, operators

CHANGES = changes.find_changes(("_containers.py",))
#: Functions whose names match this pattern usually order work on devices.
ORDERING_NAME = re.compile(
    r"wait_|synchron|record_|event|query|set_stream|on_stream", re.IGNORECASE
)
#: Functions that match ORDERING_NAME but do not order work.
OTHERS = {
    "_record_of_thread",
    "record_function",
    "get_running_loop",
    "wait_for_one",  # waits for another thread
    "synchronize",  # only finds out that a device is free
}
#: Pairs of an operator and a code -> the changed codes.
CHANGED_CODES = {
    ("drop statement", "def f():\n a()\n b = 1"): [
        "def f():\n pass\n b = 1",
        "def f():\n a()\n pass",
    ],
    ("drop statement", 'def f(): "text"\nclass B: c = 1'): [],
    ("drop context", "with a, b(1) as c, d: e"): [
        "with b(1) as c, d: e",
        "with a, b(1) as c: e",
    ],
    ("drop context", "with a(): b"): ["if True: b"],
    ("drop finally", "try: a\nfinally:\n b\n c"): ["try: a\nfinally:\n pass"],
    ("drop decorator", "@a\n@b(1)\ndef f(): c"): ["@b(1)\ndef f(): c", "@a\ndef f(): c"],
    ("drop operand", "a and b(c)"): ["b(c)", "a"],
    ("drop keyword", "f(a, b=1, *c, **d)"): ["f(a, *c, **d)", "f(a, *c, b=1)"],
    ("drop keyword", 'T = TypeVar("T", bound=A)\nf"{g(a, b=c)}"'): [],
    ("negate condition", "if a: b"): ["if not a: b"],
    ("negate condition", "[a for a in b if c]"): ["[a for a in b if not c]"],
    ("replace operator", "(a + b) // c"): ["(a + b) * c", "(a - b) // c"],
    ("replace operator", "a < b <= c"): ["a <= b <= c", "a < b < c"],
    ("replace constant", "f(1, True, 'a')"): ["f(2, True, 'a')", "f(1, False, 'a')"],
    ("replace exception", "try: a\nexcept B: c"): ["try: a\nexcept FloatingPointError: c"],
    ("unwrap call", "a = wait_for_grad(b)"): ["a = b"],
    ("unwrap call", "call_on_streams(a, b, c, d)"): ["b(c, d)"],
    ("make non-blocking", "a.copy_(b, non_blocking=c)"): ["a.copy_(b, non_blocking=True)"],
}


@pytest.mark.parametrize(("operator", "code"), CHANGED_CODES)
def test_each_operator_makes_its_changes(operator, code):
    tree, found = ast.parse(code), []
    for name, node, new in operators.find_edits(tree):
        if name == operator:
            found.append(ast.unparse(operators.replaced(tree, node, new)))
            operators.replaced(tree, new, node)
    assert found == [ast.unparse(ast.parse(each)) for each in CHANGED_CODES[operator, code]]


def test_each_operator_has_an_example():
    assert {operator for operator, _ in CHANGED_CODES} == operators.OPERATORS.keys()


def test_each_call_that_orders_work_has_a_change():
    found = changes.find_changes().values()
    changed = "\n".join(change.before for change in found if change.is_ordering)
    for path in changes.list_sources():
        for node in ast.walk(ast.parse(path.read_text())):
            name = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2]
            if name and ORDERING_NAME.search(name) and name not in OTHERS:
                assert f"{name}(" in changed, (path, name)


def test_a_changed_file_compiles_and_differs_from_the_original():
    original = ast.unparse(ast.parse((changes.IMPL / "_containers.py").read_text()))
    for change in CHANGES.values():
        compile(change.text, change.file, "exec")
        assert change.text != original
