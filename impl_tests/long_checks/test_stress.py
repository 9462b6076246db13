"""The stress test passes on impl."""


def test_a_short_run_passes(run_module):
    run = run_module("impl_tests.long_checks.stress", "--minutes", "0.1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no wrong result, no kept replicas left" in run.stdout
