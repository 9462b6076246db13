"""data_parallel: private names that other packages import."""

from hypothesis import given
from hypothesis import strategies as st

from spec_tests.data_parallel.imbalance import reported
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, PublicCall

#: Amounts of memory, or numbers of multiprocessors, of four devices.
SIZES = st.lists(st.integers(70, 100), min_size=4, max_size=4)


@clause("data_parallel.check-balance")
@given(memory=SIZES, processors=SIZES, count=st.integers(1, 4))
def test_check_balance_warns_of_imbalanced_devices(
    target, baselines, topology, memory, processors, count
):
    call = PublicCall(
        "data_parallel._check_balance", {"device_ids": [*map(DeviceAt, range(count))]}
    )
    with reported(topology, memory, processors):
        checks.agree(call, target, baselines, topology)


@clause("data_parallel.get-available-device-type")
def test_get_available_device_type_returns_the_type_of_the_accelerator(target, topology):
    found = target.data_parallel.private("_get_available_device_type")()
    checks.same(found, topology.accelerator)
