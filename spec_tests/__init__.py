"""The conformance suite of torch.nn.parallel. ``pytest -p spec_tests`` has its options."""

pytest_plugins = ["spec_tests.machine.options"]
