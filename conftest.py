"""Add the options that choose target and devices, and the fixtures that run a small suite."""

pytest_plugins = [
    "spec_tests.harness.pytest_plugin.options",
    "spec_tests.harness.pytest_plugin.hooks",
    "spec_tests.harness.tests.fixtures",
]
