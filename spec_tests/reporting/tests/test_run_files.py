"""Files of runs: what `--verdicts` writes, and the published form."""

import json
from dataclasses import replace

from spec_tests.failure import Fact, Failure
from spec_tests.machine.verdicts import Evidence, TestVerdict, find_evidence
from spec_tests.reporting import causes, runs
from spec_tests.reporting.tests import samples

ONE, TWO, THREE = "comm.scatter.slices", "comm.scatter.zero-sizes", "replicate.one-per-device"


def test_published_run_has_the_verdicts_and_the_evidence_of_the_file(tmp_path):
    verdicts = {ONE: "pass", TWO: "fail", THREE: "not-run", "replicate.no-device": "not-offered"}
    path = samples.write_verdicts(tmp_path / "v.jsonl", verdicts)
    published = samples.publish_file(path, tmp_path)
    about, found = runs.read(published)
    sent_about, sent = runs.read(path)
    assert about == sent_about
    assert {clause: each.verdict for clause, each in found.items()} == verdicts
    assert found[TWO] == sent[TWO]
    assert found[TWO].failure.call == f"call({TWO!r})"
    assert found[THREE] == Evidence("not-run", "needs two devices")


def test_evidence_is_the_first_test_with_a_call_and_counts_the_others():
    failure = Failure("differs", (Fact("output", "values"),), "they differ")
    called = replace(failure, call="f(1)")
    tests = [TestVerdict(name, "pass", ONE) for name in ("t", "v")]
    tests += [TestVerdict("t", "fail", ONE, failure=failure)]
    tests += [TestVerdict("u", "fail", ONE, failure=called)]
    assert find_evidence(tests) == {ONE: Evidence("fail", "", called, "u", others=1)}


def test_a_published_run_of_an_earlier_suite_has_verdicts_without_failures(tmp_path):
    test = {"clause": ONE, "test": "t", "verdict": "fail", "difference": "d", "call": "f(1)"}
    document = {
        "run": {**samples.HEADER, "format": 1, "hardware": "h200"},
        "pass": {},
        "tests": [test],
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**document, "not-offered": {}, "not-run": {}}))
    _, found = runs.read(path)
    assert found == {ONE: Evidence("fail", test="t")}
    assert causes.group_by_cause(found) == [("an earlier suite", [ONE])]


def test_failures_of_a_chapter_with_one_title_have_one_cause():
    names = ("parallel_apply.order", "parallel_apply.arguments", "replicate.structure")
    failure = Failure("differs", (Fact("output", "members"),), "output has no members")
    found = {name: Evidence("fail", failure=failure, test=name) for name in names}
    title = "output has no members"
    assert causes.group_by_cause(found) == [(title, [*names[:2]]), (title, [names[2]])]


def test_published_texts_have_no_absolute_path(tmp_path):
    text = "in /home/me/spec_tests/a.py:3 and/or https://example.org/a/b"
    failure = Failure("error", (), text, call="load('/home/me/a.pt')")
    published = samples.publish_run(tmp_path, {ONE: failure})
    (found,) = runs.read(published)[1].values()
    assert found.failure.text == "in a.py:3 and/or https://example.org/a/b"
    assert found.failure.call == "load('a.pt')"
