"""data_parallel: the parameters of the public functions, and the private ``_check_balance``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.data_parallel.imbalance import BalanceCall
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.signatures import accepts_calls_of, public_functions
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt

#: For each public name: a function with the documented parameters.
DOCUMENTED = {
    "DataParallel": lambda module, device_ids=None, output_device=None, dim=0: ...,
    "DataParallel.forward": lambda self, *inputs, **kwargs: ...,
    "DataParallel.scatter": lambda self, inputs, kwargs, device_ids: ...,
    "DataParallel.replicate": lambda self, module, device_ids: ...,
    "DataParallel.parallel_apply": lambda self, replicas, inputs, kwargs: ...,
    "DataParallel.gather": lambda self, outputs, output_device: ...,
    "data_parallel": (
        lambda module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None: ...
    ),
}


@clause("data_parallel.signatures")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_function_has_the_documented_parameters(target, name):
    accepts_calls_of(target.data_parallel, {name: DOCUMENTED[name]})


@clause("data_parallel.signatures")
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference):
    accepts_calls_of(target.data_parallel, public_functions(reference.submodule("data_parallel")))


#: Amounts of memory, or numbers of multiprocessors, of four devices.
SIZES = st.lists(st.integers(70, 100), min_size=4, max_size=4)


@clause("data_parallel.check-balance")
@given(memory=SIZES, processors=SIZES, count=st.integers(1, 4))
def test_check_balance_warns_of_imbalanced_devices(
    target, baselines, topology, memory, processors, count
):
    devices = tuple(DeviceAt(slot) for slot in range(count))
    call = BalanceCall(devices, tuple(memory), tuple(processors))
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.get-available-device-type")
def test_get_available_device_type_returns_the_type_of_the_accelerator(target, topology):
    found = target.data_parallel.private("_get_available_device_type")()
    checks.same(found, topology.accelerator)
