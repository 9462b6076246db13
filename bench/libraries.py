"""The two libraries that the benchmarks compare."""

from spec_tests.harness.environment.target import Target

__all__ = ["LIBRARIES", "TARGETS"]

#: Name of a library in the results of benchmarks -> its module.
LIBRARIES = {"reference": "torch.nn.parallel", "impl": "impl"}
#: Name of a library in the results of benchmarks -> its functions.
TARGETS = {name: Target(module) for name, module in LIBRARIES.items()}
