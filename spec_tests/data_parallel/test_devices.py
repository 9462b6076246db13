"""data_parallel and DataParallel: devices of replicas and of outputs."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.refusals import refused
from spec_tests.machine.clauses import clause, error_of
from spec_tests.machine.devices import not_run
from spec_tests.strategies.calls import DeviceAt, KeywordCall, any_device, build, device_lists
from spec_tests.strategies.data_parallel import FUNCTIONAL, DataParallelCall, NewModule
from spec_tests.strategies.modules import Layer, ModuleSpec, row_wise_specs
from spec_tests.strategies.small_modules import Calls, OrdinalColumn
from spec_tests.strategies.tensors import TensorSpec

SEVERAL = device_lists(min_size=2)
LINEAR = ModuleSpec((Layer("linear"),))


class SelfRecording(nn.Module):
    """A module whose forward stores ``self``, the module or a replica, in ``self.called``."""

    def forward(self, x):
        vars(self)["called"] = self
        return x


def call_of(module, devices, *output, rows=4, **options):
    x = TensorSpec((rows, 2), requires_grad=True)
    return DataParallelCall(module, (x,), {}, devices, *output, **options)


#: A module whose output has a column with the ordinal of the device of its replica.
ORDINALS = NewModule(OrdinalColumn)


@clause("data_parallel.devices.order")
@example(devices=[DeviceAt(1), DeviceAt(0, "ordinal")], count=4, functional=True)
@given(devices=SEVERAL, count=st.integers(1, 8), functional=FUNCTIONAL)
def test_chunks_are_computed_on_the_first_devices_in_order(
    target, baselines, topology, devices, count, functional
):
    call = call_of(ORDINALS, devices, rows=count, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.devices.used-prefix")
@pytest.mark.parametrize(("slots", "functional"), [((1, 2, 3), True), ((0, 1, 2), False)])
def test_a_short_batch_uses_the_first_devices(target, baselines, topology, slots, functional):
    devices = [DeviceAt(slot, "ordinal") for slot in slots]
    checks.agree(
        call_of(ORDINALS, devices, rows=2, functional=functional), target, baselines, topology
    )


@clause("data_parallel.devices.default")
@given(count=st.integers(1, 8), functional=FUNCTIONAL)
def test_all_devices_are_used_by_default(target, baselines, topology, count, functional):
    # The default devices begin with ordinal 0, even if the topology does not.
    if topology.device(0).index != 0:
        not_run("the topology does not begin with the accelerator's first device")
    call = call_of(ORDINALS, None, rows=count, functional=functional)
    checks.agree(call, target, baselines, topology)


#: Devices that do not begin with the ordinal 0, which is false in `output_device or …`.
SECOND_FIRST = [DeviceAt(1), DeviceAt(0)]


@clause("data_parallel.devices.output")
@example(devices=SECOND_FIRST, output=DeviceAt(0, "ordinal"), functional=True)
@example(devices=SECOND_FIRST, output=DeviceAt(0, "ordinal"), functional=False)
@given(devices=SEVERAL, output=any_device(), functional=FUNCTIONAL)
def test_outputs_are_joined_on_the_output_device(
    target, baselines, topology, devices, output, functional
):
    call = call_of(ORDINALS, devices, output, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.devices.none")
@pytest.mark.parametrize("function", ["DataParallel", "data_parallel"])
def test_an_empty_list_of_devices_is_refused(target, topology, function):
    arguments = {"module": ORDINALS, "device_ids": []}
    if function == "data_parallel":
        arguments["inputs"] = TensorSpec((2, 2))
    call = KeywordCall(f"data_parallel.{function}", arguments)
    refused(call, target, topology, error_of("data_parallel.devices.none"))


@clause("data_parallel.devices.checked-at-the-call")
@example(devices=[DeviceAt(0)], source=None, functional=True)
@given(devices=SEVERAL, source=st.sampled_from([None, 1]), functional=FUNCTIONAL)
def test_a_module_on_another_device_is_refused_at_the_call(
    target, baselines, topology, devices, source, functional
):
    call = call_of(ORDINALS, devices, functional=functional, source=DeviceAt(source))
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.devices.checked-at-the-call")
def test_a_module_may_be_moved_after_it_is_wrapped(topology, wrap):
    wrapped = wrap(OrdinalColumn(), [1, 0])
    wrapped.to(topology.device(1))
    assert wrapped(torch.ones(4, 2)).device == topology.device(1)


@clause("data_parallel.devices.checked-at-the-call")
@pytest.mark.parametrize("count", [1, 2], ids="devices={}".format)
def test_a_module_that_moves_after_a_call_is_refused_at_the_next_one(topology, wrap, count):
    module = OrdinalColumn().to(topology.device(0))
    wrapped = wrap(module, count)
    wrapped(torch.ones(4, 2))
    wrapped.cpu()
    with pytest.raises(RuntimeError, match=f"{topology.device(0)}.*cpu"):
        wrapped(torch.ones(4, 2))


@clause("data_parallel.devices.unmoved")
@given(devices=SEVERAL)
def test_constructor_does_not_move_the_module_for_several_devices(target, topology, devices):
    module = OrdinalColumn()
    target.data_parallel.DataParallel(module, build(devices, topology))
    checks.same({tensor.device.type for tensor in module.state_dict().values()}, {"cpu"})


@clause("data_parallel.one-device.moved")
@given(device=any_device())
def test_the_constructor_moves_the_module_to_its_one_device(target, topology, device):
    module = OrdinalColumn()
    target.data_parallel.DataParallel(module, [build(device, topology)])
    checks.same(
        {tensor.device for tensor in module.state_dict().values()}, {topology.device(device.slot)}
    )


@clause("data_parallel.one-device.same-objects")
def test_one_device_calls_the_module_itself(wrap):
    module = SelfRecording()
    wrapped = wrap(module, 1)
    wrapped(torch.ones(1))
    assert module.called is module


def nest(_, x):
    """Return a dict with a tensor in a tuple, a 0-dim tensor and a CPU tensor."""
    return {"pair": (x * 2, None), "scalar": (x * 2).sum(), "on the CPU": torch.ones(2)}


@pytest.fixture(scope="session")
def two_devices(topology):
    topology.require(distinct=2)


@clause("divergences.DP-2.output-device-of-one-device")
@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("entry_point", ["function", "class"])
@example(module=LINEAR, output=DeviceAt(1))
@given(module=row_wise_specs(max_layers_per_level=1), output=any_device())
def test_outputs_of_one_device_are_moved_to_the_output_device(
    topology, wrap, entry_point, module, output
):
    net = module.build(topology)
    x = module.rows(3, requires_grad=True).build(topology)
    device = output.build(topology)
    parallel = wrap(net, 1, entry_point, output_device=device)
    found = parallel(x)
    assert found.device == topology.device(output.slot)
    checks.same(found, net(x), module)


@clause("divergences.DP-2.output-device-of-one-device")
@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("entry_point", ["function", "class"])
@pytest.mark.parametrize("output", [DeviceAt(1), -1, "cpu"], ids="output={}".format)
def test_nested_outputs_of_one_device_are_moved_with_gradients(
    topology, wrap, entry_point, output
):
    device, module = build(output, topology), Calls(nest).to(topology.device(0))
    x = torch.ones(2, device=topology.device(0), requires_grad=True)
    found = wrap(module, 1, entry_point, output_device=device)(x)
    expected = torch.device("cpu" if device == -1 else device)
    assert found["pair"][0].device == found["scalar"].device == expected
    assert found["scalar"].shape == ()
    assert found["on the CPU"].device.type == "cpu"
    (found["pair"][0].sum() + found["scalar"]).backward()
    checks.same(x.grad, torch.full((2,), 4.0))
