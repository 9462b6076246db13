"""The fixtures that run the suite in a new process."""

from spec_tests.harness.tests.fixtures import fork_server, run_suite

__all__ = ["fork_server", "run_suite"]
