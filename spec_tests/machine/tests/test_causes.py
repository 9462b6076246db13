"""Descriptions of failures without drawn numbers, and causes that several failures have."""

import pytest

from spec_tests.machine import causes

TRACEBACK = "assert 'in replica 0' in 'Traceback:\\n  File \"{}\", line {}, in work\\n    raise '"
MEMBERS = "result[0]['a'] has members [], expected ['b']"
OTHERS = "  and 2 more differences: result[1]['a'] members, {}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACEBACK.format("/a/b.py", "1, in ...line 7"), "assert 'in replica …' in …"),
        (TRACEBACK.format("/home/user/abc...py", 12), "assert 'in replica …' in …"),
        ("assert [1, 2] == (None, None, None)", "assert … == …"),
        ("assert not [None, None...", "assert not …"),
        ("assert KeyError(1) is not None", "assert KeyError… is not None"),
        ("maximum recursion depth exceeded while calling", "maximum recursion depth exceeded"),
        (MEMBERS, "result has members [], expected "),
        (
            f"{MEMBERS}\n{OTHERS.format('result[2] members')}",
            "result has members [], expected ",
        ),
        (
            f"{MEMBERS}\n{OTHERS.format('result[0] dtype')}",
            "result has members [], expected ; also result dtype",
        ),
    ],
)
def test_a_description_has_no_path_no_drawn_number_and_each_fact_once(text, expected):
    assert causes.describe_difference("E", text) == f"E: {expected}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "result[0] has shape (1, 2), expected (2, 2)",
            "result['a'][1] has shape (3, 4), expected (4, 4)",
        ),
        ("module.1 has members []", "module.0.inner.1 has members []"),
        ("Traceback ...\nUserWarning: on 'a:0'\n", "UserWarning: on 'a:1'\nmore"),
        (
            f"text is 'a', expected 'ValueError {'v' * 200}'",
            f"text is 'a', expected 'K {'k' * 200}'",
        ),
    ],
    ids=["indices", "submodules", "traceback", "long text"],
)
def test_texts_that_differ_in_values_have_one_cause(first, second):
    texts = {"comm.gather.a": first, "comm.gather.b": second, "comm.gather.c": "result is a tuple"}
    counts = [len(clauses) for _, clauses in causes.group_by_cause(texts)]
    assert counts == [2, 1]


@pytest.mark.parametrize(("text", "count"), [("result is None", 2), ("OSError: no device", 1)])
def test_only_errors_are_one_cause_in_several_parts_of_the_specification(text, count):
    found = {"comm.gather.joined": text, "comm.scatter.slices": text}
    assert len(causes.group_by_cause(found)) == count
