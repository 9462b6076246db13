"""C++ data_parallel: the devices that it uses, and the arguments that it refuses.

The tests check the C++ front end, not the target or the reference.
"""

import pytest
import torch

from spec_tests.cpp_front_end.modules import build_cpp_module
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.topology import not_run


def linear_model(front_end, device="cpu"):
    return build_cpp_module(front_end, "linear", 0, torch.device(device))


@clause("cpp.data_parallel.one-device-moves-the-module")
def test_one_device_moves_the_module(front_end, topology):
    module = linear_model(front_end)
    front_end.data_parallel(module, torch.ones(2, 6), topology.take(1), None, 0)
    assert {parameter.device for parameter in module.parameters().values()} == {topology.device(0)}


@clause("cpp.data_parallel.one-device-keeps-buffers")
def test_one_device_updates_the_buffers(front_end, topology):
    module = front_end.Model("batch_norm")
    front_end.data_parallel(module, torch.randn(2, 2, 4, 4), topology.take(1), None, 0)
    assert module.buffers()["body.0.num_batches_tracked"].item() == 1


@clause("cpp.data_parallel.buffers-are-lost")
def test_a_call_on_two_devices_does_not_update_the_buffers(front_end, topology):
    module = front_end.Model("batch_norm")
    module.to(topology.device(0))
    inputs = torch.randn(4, 2, 4, 4).to(topology.device(0))
    front_end.data_parallel(module, inputs, topology.take(2), None, 0)
    assert module.buffers()["body.0.num_batches_tracked"].item() == 0


@clause("cpp.data_parallel.output-device")
@pytest.mark.parametrize("count", [1, 2], ids="devices={}".format)
@pytest.mark.parametrize("slot", [None, 1], ids=["cpu", "second"])
def test_output_is_on_the_output_device(front_end, topology, count, slot):
    module = linear_model(front_end, topology.device(0))
    inputs = torch.ones(4, 6, device=topology.device(0))
    destination = topology.device(slot)
    found = front_end.data_parallel(module, inputs, topology.take(count), destination, 0)
    assert found.device == destination


@clause("cpp.data_parallel.output-device")
@pytest.mark.parametrize("count", [1, 2], ids="devices={}".format)
def test_output_device_defaults_to_the_first_device(front_end, topology, count):
    devices = topology.take([1, 0])[:count]
    module = linear_model(front_end, devices[0])
    found = front_end.data_parallel(module, torch.ones(4, 6), devices, None, 0)
    assert found.device == devices[0]


@clause("cpp.data_parallel.surplus-devices")
def test_surplus_devices_get_no_replica(front_end, topology):
    # This device does not exist. Creating a replica on it would raise an error, so the test
    # detects a surplus replica.
    missing_device = torch.device(topology.accelerator, torch.accelerator.device_count())
    module = linear_model(front_end, topology.device(0))
    found = front_end.data_parallel(
        module, torch.ones(2, 6), [*topology.take(2), missing_device], None, 0
    )
    assert found.shape == (2, 4)


@clause("cpp.data_parallel.scalars")
def test_cpp_scalar_outputs_become_a_vector(front_end, topology):
    mean = front_end.Model("mean")
    inputs = torch.arange(4.0, device=topology.device(0))
    assert front_end.data_parallel(mean, inputs, topology.take(2), None, 0).tolist() == [0.5, 2.5]


@clause("cpp.data_parallel.scalars-with-gradients")
def test_scalar_outputs_that_require_grad_are_refused(front_end, topology):
    mean = front_end.Model("mean")
    inputs = torch.ones(4, device=topology.device(0), requires_grad=True)
    with pytest.raises(IndexError, match="Dimension specified as 0 but tensor has no dimensions"):
        front_end.data_parallel(mean, inputs, topology.take(2), None, 0)


@clause("cpp.data_parallel.refusals")
def test_missing_devices_are_refused_without_cuda(front_end, topology):
    if topology.accelerator == "cuda":
        not_run("this machine has CUDA devices, which are the default")
    with pytest.raises(RuntimeError, match="Expected at least one CUDA device to be available"):
        front_end.data_parallel(linear_model(front_end), torch.ones(4, 6), None, None, 0)


@clause("cpp.data_parallel.refusals")
def test_arguments_that_scatter_refuses_are_refused(front_end, topology):
    module, devices = linear_model(front_end, topology.device(0)), topology.take(2)
    with pytest.raises(RuntimeError, match="chunk expects at least a 1-dimensional tensor"):
        front_end.data_parallel(module, torch.tensor(1.0), devices, None, 0)
    with pytest.raises(IndexError, match="Dimension out of range"):
        front_end.data_parallel(module, torch.ones(4, 6), devices, None, 2)


@clause("cpp.data_parallel.refusals")
def test_outputs_on_the_cpu_are_refused(front_end, topology):
    devices = [topology.device(0), torch.device("cpu")]
    module = linear_model(front_end, topology.device(0))
    text = f"All inputs to Gather must be {topology.accelerator.upper()} tensors"
    with pytest.raises(RuntimeError, match=text):
        front_end.data_parallel(module, torch.ones(4, 6), devices, None, 0)
