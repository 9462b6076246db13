"""Every folder of tests and benchmarks runs on the same devices, chosen by the same options."""

pytest_plugins = ["spec_tests.harness.options", "spec_tests.harness.plugin"]
