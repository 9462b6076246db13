"""The matrix compares runs."""

from spec_tests.machine import clauses
from spec_tests.reporting import matrix, runs
from spec_tests.reporting.matrix import Matrix
from spec_tests.reporting.tests import samples

ONE, TWO, THREE = "comm.scatter.slices", "comm.scatter.zero-sizes", "replicate.one-per-device"
KNOWN = {name: clauses.load()[name] for name in (ONE, TWO, THREE)}


def test_columns_are_own_runs_then_the_reference_then_the_others_then_impl(tmp_path):
    targets = [("impl", "2.9.0"), ("theirs", "2.13.0"), ("torch.nn.parallel", "2.13.0+cpu")]
    for target, torch in [*targets, ("torch.nn.parallel", "2.9.0"), ("a", "2.13.0")]:
        samples.publish_run(tmp_path, {ONE: "pass"}, target=target, torch=torch, version="")
    file = samples.write_verdicts(tmp_path / "own.jsonl", {ONE: "pass"}, target="own", version="")
    assert [run.label for run in runs.load(tmp_path, [file])] == [
        "own · torch 2.12.0 · sim · own",
        "torch.nn.parallel · torch 2.9.0 · sim",
        "torch.nn.parallel · torch 2.13.0 · sim",
        "a · torch 2.13.0 · sim",
        "theirs · torch 2.13.0 · sim",
        "impl · torch 2.9.0 · sim",
    ]


def test_clauses_that_a_run_does_not_know_have_no_verdict(tmp_path):
    verdicts_of = {
        "old": {ONE: "pass", TWO: "not-run"},
        "new": {ONE: "fail", TWO: "known", THREE: "pass"},
    }
    for target, verdicts in verdicts_of.items():
        samples.publish_run(tmp_path, verdicts, target=target, version="")
    text = matrix.format_page(Matrix(KNOWN, runs.load(tmp_path)))
    name = "torch-2.12.0_sim.json) | {} | 2.12.0 | sim | 2026-01-02 | {} |".format
    assert f"| [1](results/new/{name('new', '1 | 0 | 1 | 1 | 0 | 0')}" in text
    assert f"| [2](results/old/{name('old', '0 | 0 | 0 | 1 | 1 | 1')}" in text
