"""data_parallel: private names that other packages import."""

from spec_tests import checks
from spec_tests.machine.clauses import clause


@clause("data_parallel.get-available-device-type")
def test_get_available_device_type_returns_the_type_of_the_accelerator(target, topology):
    found = target.data_parallel.private("_get_available_device_type")()
    checks.same(found, topology.accelerator)
