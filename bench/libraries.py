"""The two libraries that the benchmarks compare."""

from spec_tests.harness.environment.target import Target

__all__ = ["LIBRARIES", "TARGETS"]

#: For each library, by its name in the results: its module.
LIBRARIES = {"reference": "torch.nn.parallel", "impl": "impl"}
#: For each library, by its name in the results: the module as a `Target`.
TARGETS = {name: Target(module) for name, module in LIBRARIES.items()}
