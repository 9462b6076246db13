"""A run of the benchmarks on a target counts skipped and failed ones."""

import pytest

PARALLEL_APPLY = '''
"""A target without parts but this one."""


def parallel_apply(*arguments):
    raise ValueError("wrong")
'''


@pytest.fixture
def run_benchmarks(run_module):
    """Return a function that runs selected benchmarks, and returns the last line and the rest."""

    def run(target, module, *options):
        options = [f"--target={target}", "--accelerator=sim", "--benchmark-max-time=0", *options]
        command = [
            "-p",
            "spec_tests",
            "-p",
            "no:cacheprovider",
            "-q",
            "--pyargs",
            f"bench.{module}",
        ]
        done = run_module("pytest", *command, *options)
        *others, last = done.stdout.splitlines()
        return done.returncode, "\n".join(others), last

    return run


def test_cpu_replicas_are_measured_only_for_impl(run_benchmarks):
    selected = ["-k", "training and MLP"]
    status, output, last = run_benchmarks("torch.nn.parallel", "bench_efficiency", *selected)
    assert (status, "\n1 skipped: measures what only impl has" in output) == (0, True), output
    assert last.startswith("1 passed, 1 skipped,")
    assert run_benchmarks("impl", "bench_efficiency", *selected)[-1].startswith("2 passed,")


def test_a_failing_benchmark_is_one_failure(run_benchmarks, write_package):
    write_package("wrong", parallel_apply=PARALLEL_APPLY)
    status, output, last = run_benchmarks("wrong", "bench_parallel_apply")
    assert (status, "ValueError: wrong" in output) == (1, True), output
    assert last.startswith("2 failed")
    assert "error" not in last
