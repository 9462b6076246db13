"""Every folder of tests and benchmarks runs on the same devices, chosen by the same options."""

pytest_plugins = [
    "spec_tests.harness.pytest_plugin.options",
    "spec_tests.harness.pytest_plugin.hooks",
]
