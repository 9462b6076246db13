"""The clauses about ``torch::nn::parallel``, which the tests call instead of the target.

The input of a module of the kind "sleep and raise" is a row (ms, code): the module sleeps for ms
milliseconds and raises an error if the code is negative.
"""

from contextlib import contextmanager

import pytest
import torch

from spec_tests.cpp_front_end.backward import is_reduced_early, run_forward
from spec_tests.cpp_front_end.modules import KINDS, make_cpp_module, named_tensors
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.topology import not_run

#: Milliseconds that a slow module sleeps before it fails: long enough for a module that does not
#: sleep to fail first, even on a busy machine.
SLEEP = 500


@contextmanager
def four_threads():
    """Set the number of PyTorch's threads to four. With too few threads replicas wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def replicate(front_end, topology, kind, count):
    module = make_cpp_module(front_end, kind, 0, topology.device(0))
    return module, front_end.replicate(module, topology.take(count))


def loss_of(front_end, replicas, topology, kind):
    inputs = [_random_batch(kind, topology.device(slot)) for slot in range(len(replicas))]
    outputs = front_end.parallel_apply(replicas, inputs, None)
    return sum(output.square().sum().cpu() for output in outputs)


def loss_of_first_layer(replicas, topology):
    pairs = zip(replicas, topology.take(len(replicas)), strict=True)
    return sum(
        replica.run_layers(_random_batch("layers", device), 0, 1).sum().cpu()
        for replica, device in pairs
    )


def _random_batch(kind, device):
    return torch.randn(4, *KINDS[kind][1]).to(device)


def sleep_and_raise(front_end, *rows):
    inputs = [torch.tensor([row]) for row in rows]
    with four_threads():
        return front_end.parallel_apply(
            [front_end.Model("sleep and raise")] * len(rows), inputs, None
        )


def run_linear(front_end, topology, batch, devices, output_device=None, dim=0):
    """Return the output of `data_parallel` for a linear module on the first device."""
    module = make_cpp_module(front_end, "linear", 0, topology.device(0))
    return front_end.data_parallel(module, batch, devices, output_device, dim)


def run_mean(front_end, topology, **options):
    batch = torch.arange(4.0, device=topology.device(0), **options)
    return front_end.data_parallel(front_end.Model("mean"), batch, topology.take(2), None, 0)


@clause("cpp.replicate.clones")
@pytest.mark.parametrize("kind", KINDS)
def test_replicas_share_no_memory_and_have_equal_tensors_on_their_devices(
    front_end, topology, kind
):
    module, replicas = replicate(front_end, topology, kind, 3)
    expected = named_tensors(module)
    pointers = {tensor.data_ptr() for tensor in expected.values()}
    for device, replica in zip(topology.take(3), replicas, strict=True):
        found = named_tensors(replica)
        assert {tensor.device for tensor in found.values()} == {device}
        assert all(torch.equal(found[name].cpu(), expected[name].cpu()) for name in expected)
        own = {tensor.data_ptr() for tensor in found.values()}
        assert not own & pointers
        pointers |= own


@clause("cpp.replicate.buffers-are-lost")
def test_replicas_do_not_update_buffers_of_the_module(front_end, topology):
    module, replicas = replicate(front_end, topology, "batch_norm", 2)
    loss_of(front_end, replicas, topology, "batch_norm")
    counts = [model.buffers()["body.0.num_batches_tracked"] for model in (module, *replicas)]
    assert [count.item() for count in counts] == [0, 1, 1]


@clause("cpp.replicate.one-node-a-parameter")
@pytest.mark.parametrize("kind", ["linear", "layers", "scaled"])
def test_each_tensor_has_one_reduction_node(front_end, topology, kind):
    _, replicas = replicate(front_end, topology, kind, 3)
    nodes = [
        {name: x.grad_fn for name, x in named_tensors(replica).items() if x.requires_grad}
        for replica in replicas
    ]
    assert all("ReduceAdd" in node.name() for named in nodes for node in named.values())
    # Python objects do not identify C++ nodes. Sequence numbers do: they are unique in a thread.
    numbers = [{name: node._sequence_nr() for name, node in named.items()} for named in nodes]
    assert numbers[0] == numbers[1] == numbers[2]
    assert len(set(numbers[0].values())) == len(numbers[0])


@clause("cpp.replicate.early-reduction")
def test_cpp_reduces_the_last_layer_before_backward_ends(front_end, topology):
    topology.require(distinct=2)
    module, replicas = replicate(front_end, topology, "layers", 2)
    pairs = zip(replicas, topology.take(2), strict=True)
    first, second = [run_forward(replica.run_layers, device) for replica, device in pairs]
    assert is_reduced_early(module.parameters()["body.4.weight"], first, second)


@clause("cpp.replicate.unused-parameters")
def test_parameter_that_no_replica_uses_gets_no_gradient(front_end, topology):
    module, replicas = replicate(front_end, topology, "layers", 2)
    loss_of_first_layer(replicas, topology).backward()
    parameters = module.parameters().items()
    unused = {name for name, parameter in parameters if parameter.grad is None}
    assert unused == {"body.1.weight", "body.1.bias", "body.4.weight", "body.4.bias"}


@clause("cpp.replicate.ties-come-apart")
def test_tied_weight_is_two_tensors_in_a_replica(front_end, topology):
    module, (replica, _) = replicate(front_end, topology, "tied", 2)
    names = ("again", "first.weight")
    assert len({module.parameters()[name].data_ptr() for name in names}) == 1
    assert len({replica.parameters()[name].data_ptr() for name in names}) == 2


@clause("cpp.replicate.no-devices")
def test_empty_device_list_returns_no_replicas(front_end, topology):
    assert front_end.replicate(front_end.Model("linear"), []) == []


@clause("cpp.parallel_apply.first-in-time")
def test_first_error_in_time_is_raised(front_end, topology):
    for first in range(3):
        rows = [(0 if index == first else SLEEP, -1 - index) for index in range(3)]
        with pytest.raises(ValueError, match=f"module {1 + first} failed"):
            sleep_and_raise(front_end, *rows)


@clause("cpp.parallel_apply.all-end")
def test_error_is_raised_after_all_modules_end(front_end, topology):
    front_end.pop_ended_count()
    with pytest.raises(ValueError, match="module 1 failed"):
        sleep_and_raise(front_end, (0, -1), (SLEEP, 0), (SLEEP, 0))
    assert front_end.pop_ended_count() == 3


@clause("cpp.parallel_apply.outputs-are-moved")
def test_cpp_outputs_are_moved_to_the_given_devices(front_end, topology):
    inputs = [torch.ones(2, device=topology.device(0)) for _ in range(3)]
    models = [front_end.Model("identity")] * 3
    outputs = front_end.parallel_apply(models, inputs, topology.take(3))
    assert [output.device for output in outputs] == topology.take(3)


@clause("cpp.parallel_apply.outputs-follow-inputs")
def test_without_the_devices_argument_outputs_are_on_the_input_devices(front_end, topology):
    inputs = [torch.ones(2, device=device) for device in topology.take(3)]
    models = [front_end.Model("current device")] * 3
    outputs = front_end.parallel_apply(models, inputs, None)
    assert [output.device for output in outputs] == topology.take(3)


@clause("cpp.parallel_apply.current-device")
def test_device_of_a_module_is_not_made_current(front_end, topology):
    topology.require(distinct=2)
    device = topology.device(1)
    models = [front_end.Model("current device")]
    with torch.accelerator.device_index(topology.device(0).index):
        outputs = front_end.parallel_apply(models, [torch.ones(1, device=device)], [device])
    assert outputs[0].tolist() == [topology.device(0).index]


@clause("cpp.parallel_apply.nothing")
def test_empty_list_of_modules_returns_no_outputs(front_end, topology):
    assert front_end.parallel_apply([], [], None) == []


@clause("cpp.data_parallel.one-device-moves-the-module")
def test_one_device_moves_the_module(front_end, topology):
    module = front_end.Model("linear")
    front_end.data_parallel(module, torch.ones(2, 6), topology.take(1), None, 0)
    assert {parameter.device for parameter in module.parameters().values()} == {topology.device(0)}


@clause("cpp.data_parallel.one-device-keeps-buffers")
def test_one_device_updates_the_buffers(front_end, topology):
    assert _count_batches(front_end, topology, 1) == 1


@clause("cpp.data_parallel.buffers-are-lost")
def test_a_call_on_two_devices_does_not_update_the_buffers(front_end, topology):
    assert _count_batches(front_end, topology, 2) == 0


def _count_batches(front_end, topology, count):
    module = make_cpp_module(front_end, "batch_norm", 0, topology.device(0))
    batch = _random_batch("batch_norm", topology.device(0))
    front_end.data_parallel(module, batch, topology.take(count), None, 0)
    return module.buffers()["body.0.num_batches_tracked"].item()


@clause("cpp.data_parallel.output-device")
def test_output_is_on_the_output_device_or_the_first_device(front_end, topology):
    for count in (1, 2):
        devices = topology.take([1, 0])[:count]
        for destination in (None, torch.device("cpu"), topology.device(1)):
            found = run_linear(front_end, topology, torch.ones(4, 6), devices, destination)
            assert found.device == (destination or devices[0])


@clause("cpp.data_parallel.surplus-devices")
def test_surplus_devices_get_no_replica(front_end, topology):
    # This device does not exist. Creating a replica on it would raise an error, so the test
    # detects a surplus replica.
    missing = torch.device(topology.accelerator, torch.accelerator.device_count())
    found = run_linear(front_end, topology, torch.ones(2, 6), [*topology.take(2), missing])
    assert found.shape == (2, 4)


@clause("cpp.data_parallel.scalars")
def test_cpp_scalar_outputs_become_a_vector(front_end, topology):
    assert run_mean(front_end, topology).tolist() == [0.5, 2.5]


def differentiate_twice(front_end, topology):
    module, replicas = replicate(front_end, topology, "linear", 2)
    loss = loss_of(front_end, replicas, topology, "linear")
    torch.autograd.grad(loss, list(module.parameters().values()), create_graph=True)


def use_one_of_two_replicas(front_end, topology):
    _, replicas = replicate(front_end, topology, "layers", 2)
    loss_of_first_layer(replicas[:1], topology).backward()


def apply_two(front_end, inputs, devices):
    front_end.parallel_apply([front_end.Model("identity")] * 2, inputs, devices)


def run_without_devices(front_end, topology):
    if topology.accelerator == "cuda":
        not_run("this machine has CUDA devices, which are the default")
    run_linear(front_end, topology, torch.ones(4, 6), None)


def run_on_the_cpu(front_end, topology):
    devices = [topology.device(0), torch.device("cpu")]
    run_linear(front_end, topology, torch.ones(4, 6), devices)


#: For each refusal: the clause, a function that makes the call, and the class and the text of the
#: error. ``SIM`` stands for the accelerator.
REFUSALS = {
    "double backward": (
        "cpp.replicate.no-double-backward",
        differentiate_twice,
        RuntimeError,
        "ReduceAdd can only be used during the backward pass of data parallel",
    ),
    "backward of one replica": (
        "cpp.replicate.used-by-some",
        use_one_of_two_replicas,
        RuntimeError,
        "All inputs of ReduceAdd must have the same size",
    ),
    "error of a module": (
        "cpp.parallel_apply.error-is-itself",
        lambda front_end, _: sleep_and_raise(front_end, (0, 0), (0, -7)),
        ValueError,
        r"^module 7 failed(\n|$)",
    ),
    "too few inputs": (
        "cpp.parallel_apply.lengths",
        lambda front_end, _: apply_two(front_end, [torch.ones(1)], None),
        RuntimeError,
        "Must have as many inputs as modules",
    ),
    "too few devices": (
        "cpp.parallel_apply.lengths",
        lambda front_end, topology: apply_two(front_end, [torch.ones(1)] * 2, topology.take(1)),
        RuntimeError,
        "Must have as many devices as modules",
    ),
    "scalars that require a gradient": (
        "cpp.data_parallel.scalars-with-gradients",
        lambda front_end, topology: run_mean(front_end, topology, requires_grad=True),
        IndexError,
        "Dimension specified as 0 but tensor has no dimensions",
    ),
    "no devices": (
        "cpp.data_parallel.refusals",
        run_without_devices,
        RuntimeError,
        "Expected at least one CUDA device to be available",
    ),
    "scalar batch": (
        "cpp.data_parallel.refusals",
        lambda front_end, topology: run_linear(
            front_end, topology, torch.tensor(1.0), topology.take(2)
        ),
        RuntimeError,
        "chunk expects at least a 1-dimensional tensor",
    ),
    "wrong dim": (
        "cpp.data_parallel.refusals",
        lambda front_end, topology: run_linear(
            front_end, topology, torch.ones(4, 6), topology.take(2), dim=2
        ),
        IndexError,
        "Dimension out of range",
    ),
    "outputs on the CPU": (
        "cpp.data_parallel.refusals",
        run_on_the_cpu,
        RuntimeError,
        "All inputs to Gather must be SIM tensors",
    ),
}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [pytest.param(*row, marks=clause(name), id=id_) for id_, (name, *row) in REFUSALS.items()],
)
def test_cpp_refuses(front_end, topology, call, error, text):
    with pytest.raises(error, match=text.replace("SIM", topology.accelerator.upper())):
        call(front_end, topology)
