"""Add the options that choose target and devices to all tests and benchmarks."""

pytest_plugins = [
    "spec_tests.harness.pytest_plugin.options",
    "spec_tests.harness.pytest_plugin.hooks",
]
