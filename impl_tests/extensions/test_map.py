"""DataParallel.map computes whole batches on free devices."""

import contextvars
import re
import threading
import time
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import impl
from impl import _replica_pool
from impl_tests.extensions.kept_modules import recording_data_parallel
from spec_tests import checks
from spec_tests.checks.leaks import wait_until
from spec_tests.machine import capabilities
from spec_tests.machine.processes import run_program
from spec_tests.strategies.small_modules import Calls

TIMEOUT = 20


class Waiting(nn.Module):
    """A layer that waits, for a batch of one row, until ``released`` is set."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, scale=1):
        if len(x) == 1:
            assert RELEASED.wait(TIMEOUT)
        COMPUTED.append(len(x))
        return self.layer(x) * scale


#: The events of `Waiting`. A replica shares no attributes of its own with the module.
RELEASED = threading.Event()
COMPUTED = []


@pytest.fixture(autouse=True)
def reset_events():
    RELEASED.clear()
    COMPUTED.clear()
    yield
    RELEASED.set()


def wrapped(topology, devices=3, module=None, **options):
    placed = topology.take(devices) if isinstance(devices, int) else devices
    module = (module or nn.Linear(2, 2)).to(placed[0] if placed else "cpu").eval()
    return impl.DataParallel(module, placed, **options)


def check_outputs(found, expected):
    assert len(found) == len(expected)
    for output, other in zip(found, expected, strict=True):
        checks.same(output, other, tolerance=checks.LAYER)


def batches_of(rows, device="cpu"):
    return [torch.rand(count, 2, device=device) for count in rows]


@pytest.mark.usefixtures("no_devices")
def test_without_devices_the_module_gets_the_batch_itself():
    wrapper = impl.DataParallel(Calls(lambda _, x: x)).eval()
    batches = [torch.ones(2, device="meta"), torch.eye(2).to_sparse()]
    with torch.no_grad():
        outputs = [*wrapper.map([*batches, impl.Whole(batches[0])])]
    assert [*map(id, outputs)] == [*map(id, [*batches, batches[0]])]


@given(
    rows=st.lists(st.integers(0, 4), max_size=8),
    devices=st.integers(1, 4) | st.sampled_from([["cpu"], ["cpu"] * 3]),
    in_flight=st.none() | st.integers(1, 9),
    in_turn=st.booleans(),
    mode=st.sampled_from([torch.no_grad, torch.inference_mode]),
)
def test_outputs_are_those_of_the_module_in_order(
    topology, rows, devices, in_flight, in_turn, mode
):
    wrapper = wrapped(topology, devices, in_turn=in_turn)
    batches = batches_of(rows, wrapper.src_device_obj)
    with mode():
        found = [*wrapper.map(batches, in_flight=in_flight)]
        check_outputs(found, [wrapper.module(x) for x in batches])


def test_a_batch_holds_the_arguments_of_one_call(topology):
    RELEASED.set()
    wrapper = wrapped(topology, 2, Waiting())
    x = torch.rand(3, 2, device=topology.device(0))
    batches = [x, (x, 2), [x, x], {"x": x, "scale": 3}, (x,)]
    with torch.no_grad():
        y = wrapper.module(x)
        expected = [y, y * 2, y * x, y * 3, y]
        check_outputs([*wrapper.map(batches)], expected)


def test_a_packed_sequence_is_one_argument(topology):
    steps = pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    wrapper = wrapped(topology, 2, Calls(lambda _, packed: packed.data + 1))
    with torch.no_grad():
        outputs = [*wrapper.map([steps] * 3)]
    check_outputs(outputs, [steps.data.to(topology.device(0)) + 1] * 3)


def jagged(rows):
    return torch.nested.as_nested_tensor([*rows], layout=torch.jagged)


#: Tensors that PyTorch cannot split, or not on all devices.
UNSPLIT = {
    "sparse": torch.Tensor.to_sparse,
    "sparse CSR": torch.Tensor.to_sparse_csr,
    "nested": lambda x: torch.nested.as_nested_tensor([*x]),
    "transposed jagged": lambda x: jagged([x, x]).transpose(1, 2),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("devices", [1, 2, ["cpu"] * 2], ids=str)
@pytest.mark.parametrize("convert", UNSPLIT.values(), ids=UNSPLIT)
def test_a_batch_may_have_a_tensor_that_cannot_be_split(topology, convert, devices):
    capabilities.require("sparse")
    wrapper = wrapped(topology, devices, Calls(lambda _, batch: batch["graph"]))
    graph = convert(torch.eye(3))
    batch = {"graph": graph, "x": torch.ones(4)}
    with torch.no_grad():
        outputs = [*wrapper.map([(batch,)] * 3)]
        if devices == 1:
            outputs.append(wrapper(batch))
    for found in outputs:
        assert found.layout is graph.layout
        checks.same(str(found.cpu()), str(graph))


@pytest.mark.parametrize("devices", [1, 2])
def test_outputs_are_moved_to_the_output_device(topology, devices):
    output_device = topology.device(2)
    wrapper = wrapped(topology, devices, output_device=output_device)
    with torch.no_grad():
        outputs = [*wrapper.map(batches_of([2] * 4))]
    assert {output.device for output in outputs} == {output_device}


def test_batches_are_read_in_the_thread_of_the_caller(topology):
    wrapper = wrapped(topology)
    readers = []

    def batches():
        for x in batches_of([1, 2, 3]):
            readers.append(threading.get_ident())
            yield x

    with torch.no_grad():
        assert len([*wrapper.map(batches())]) == 3
    assert {*readers} == {threading.get_ident()}


def test_a_slow_batch_delays_no_other_batch(topology):
    wrapper = wrapped(topology, 2, Waiting())
    rows = [1, 2, 3, 4, 5]

    def batches():
        yield from batches_of(rows, topology.device(0))
        assert wait_until(lambda: len(COMPUTED) >= 3)
        RELEASED.set()

    with torch.no_grad():
        outputs = [*wrapper.map(batches(), in_flight=len(rows) + 1)]
    assert [len(output) for output in outputs] == rows
    # The other device has computed all batches that began before the slow one was released.
    assert COMPUTED[:3] == [2, 3, 4]


@pytest.mark.parametrize("devices", [2, 3])
def test_every_device_computes(topology, devices):
    barrier = threading.Barrier(devices, timeout=TIMEOUT)

    class Meeting(nn.Linear):
        def forward(self, x):
            barrier.wait()
            return super().forward(x), self.weight.device.index

    wrapper = wrapped(topology, devices, Meeting(2, 2))
    with torch.no_grad():
        outputs = [*wrapper.map(batches_of([2] * devices * 2))]
    assert {index for _, index in outputs} == {each.index for each in topology.take(devices)}


def test_batches_are_computed_one_by_one_in_turn(topology):
    running = []

    class Counting(nn.Linear):
        def forward(self, x):
            running.append(len(running))
            assert running == [0]
            time.sleep(0.005)
            running.clear()
            return super().forward(x)

    wrapper = wrapped(topology, 2, Counting(2, 2), in_turn=True)
    with torch.no_grad():
        assert len([*wrapper.map(batches_of([2] * 6))]) == 6


def test_a_replica_takes_the_next_batch_while_the_caller_has_control(topology):
    wrapper = wrapped(topology, 2, Waiting())
    with torch.no_grad():
        outputs = wrapper.map(batches_of([2] * 16, topology.device(0)))
        next(outputs)
        # By default four batches for each device may be in flight.
        assert wait_until(lambda: len(COMPUTED) == 8)
        outputs.close()
    assert len(COMPUTED) == 8


@pytest.mark.parametrize("in_flight", [1, 8])
def test_a_change_by_the_iterator_applies_to_the_batches_after_it(topology, in_flight):
    module = nn.Linear(2, 2)
    module.step = 0
    module.register_forward_hook(lambda replica, *_: replica.step)
    wrapper = wrapped(topology, 2, module)

    def batches():
        for module.step in range(8):
            yield torch.ones(2, 2)

    with torch.no_grad():
        outputs = [*wrapper.map(batches(), in_flight=in_flight)]
    assert all(output >= step for step, output in enumerate(outputs))
    assert outputs[-1] == 7


def test_each_batch_has_the_state_of_the_caller(topology):
    """Also in a thread that has computed the batch before."""
    variable, local = contextvars.ContextVar("variable"), threading.local()

    class State(nn.Linear):
        def forward(self, x):
            found = variable.get(), torch.is_autocast_enabled("cpu"), hasattr(local, "value")
            variable.set("that of the batch before")
            torch.set_autocast_enabled("cpu", not found[1])
            local.value = x
            return found

    outputs = wrapped(topology, 2, State(2, 2)).map(batches_of([2] * 8), in_flight=1)
    with torch.no_grad():
        for index in range(8):
            variable.set(index)
            with torch.autocast("cpu", enabled=index % 2 == 1):
                assert next(outputs) == (index, index % 2 == 1, False)


def test_unordered_outputs_are_yielded_when_they_are_ready(topology):
    wrapper = wrapped(topology, 2, Waiting())
    found = []
    with torch.no_grad():
        for output in wrapper.map(batches_of([1, 2, 3, 4]), ordered=False):
            found.append(len(output))
            if len(found) == 3:
                RELEASED.set()
    assert found == [2, 3, 4, 1]


@given(devices=st.integers(1, 3), in_flight=st.integers(1, 8))
def test_no_more_batches_are_taken_than_in_flight(topology, devices, in_flight):
    wrapper = wrapped(topology, devices)
    taken, most = [], 0

    def batches():
        for x in batches_of([1] * 12):
            taken.append(x)
            yield x

    with torch.no_grad():
        for count, _ in enumerate(wrapper.map(batches(), in_flight=in_flight)):
            most = max(most, len(taken) - count)
    # The output of the loop is one of the batches in flight until it is yielded.
    assert most <= in_flight


class Failing(nn.Linear):
    def forward(self, x):
        if len(x) == 1:
            raise KeyError("one row")
        return super().forward(x)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_the_error_of_a_batch_takes_the_place_of_its_output(topology, devices):
    outputs = wrapped(topology, devices, Failing(2, 2)).map(batches_of([2, 3, 4, 1, 5, 1]))
    found = []
    with torch.no_grad(), pytest.raises(KeyError, match="one row") as caught:
        found.extend(map(len, outputs))
    assert found == [2, 3, 4]
    assert re.search(r"in replica \d on device .*, in batch 3", str(caught.value))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("ordered", [True, False])
def test_an_error_is_yielded_in_place_of_the_output(topology, devices, ordered):
    wrapper = wrapped(topology, devices, Failing(2, 2))
    rows = [1, 2, 3, 1, 5, 1]
    with torch.no_grad():
        found = [*wrapper.map(batches_of(rows), ordered=ordered, return_exceptions=True)]
    numbers = [re.search(r"in batch (\d)", str(each))[1] for each in found if is_error(each)]
    assert sorted(numbers) == ["0", "3", "5"]
    if ordered:
        assert [1 if is_error(each) else len(each) for each in found] == rows


def is_error(output):
    return isinstance(output, KeyError)


def test_an_error_of_the_iterator_is_raised_after_the_outputs(topology):
    error = OSError("no more files")

    def batches():
        yield from batches_of([2, 3, 4])
        raise error

    outputs = wrapped(topology, 2).map(batches())
    found = []
    with torch.no_grad(), pytest.raises(OSError) as caught:
        found.extend(map(len, outputs))
    assert found == [2, 3, 4]
    assert caught.value is error


@pytest.mark.parametrize(("end", "rows"), [("close", 2), ("end", 2), ("error", 1)])
def test_replicas_are_freed_at_the_end(topology, end, rows):
    created = []
    kind = recording_data_parallel(created)
    wrapper = kind(Failing(2, 2).to(topology.device(0)).eval(), topology.take(3))
    with torch.no_grad():
        outputs = wrapper.map(batches_of([2, 3, 4, rows]))
        next(outputs)
        ((_, replicas),) = created
        assert any(replica() is not None for replica in replicas)
        with pytest.raises(KeyError) if end == "error" else nullcontext():
            outputs.close() if end == "close" else list(outputs)
        assert all(replica() is None for replica in replicas)
        wrapper(torch.rand(4, 2, device=topology.device(0)))  # No block of hold() is left.
    assert all(replica() is None for _, replicas in created for replica in replicas)


def test_close_waits_for_the_batches_that_have_begun(topology):
    class Slow(nn.Linear):
        def forward(self, x):
            COMPUTED.append("begin")
            time.sleep(0.01)
            COMPUTED.append("end")
            return super().forward(x)

    wrapper = wrapped(topology, 3, Slow(2, 2))
    with torch.no_grad():
        outputs = wrapper.map(batches_of([2] * 9))
        next(outputs)
        outputs.close()
    assert COMPUTED.count("begin") == COMPUTED.count("end") < 9


@pytest.mark.parametrize("devices", [1, 2])
def test_grad_mode_is_refused(topology, devices):
    wrapper = wrapped(topology, devices)
    with pytest.raises(RuntimeError, match=r"grad mode is on.*no_grad"):
        next(wrapper.map(batches_of([2])))


@pytest.mark.parametrize("in_flight", [0, -1])
def test_a_limit_below_one_is_refused_at_once(topology, in_flight):
    wrapper = wrapped(topology)
    with pytest.raises(ValueError, match=f"in_flight is {in_flight}"):
        wrapper.map([], in_flight=in_flight)


def change_in_silence(wrapper, batches, in_flight=1):
    """Begin `map`, change the module by ``.data``, and compute one more batch."""
    outputs = wrapper.map(batches, in_flight=in_flight)
    next(outputs)
    wrapper.module.weight.data.add_(1)
    next(outputs)
    return outputs


@pytest.mark.parametrize("interval", [0, 60])
@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("is_undone", [False, True])
def test_map_ends_in_an_error_after_a_hidden_change(
    topology, monkeypatch, interval, in_flight, is_undone
):
    """Also if no time for a sample comes before the end, or if a seen change follows."""
    monkeypatch.setattr(_replica_pool, "SAMPLE_INTERVAL", interval)
    wrapper = wrapped(topology, 2)
    batches = batches_of([2] * 5, topology.device(0))
    with torch.no_grad():
        outputs = change_in_silence(wrapper, batches, in_flight)
        if is_undone:
            wrapper.module.bias.add_(1)
        with pytest.raises(RuntimeError, match="'weight' has changed"):
            list(outputs)


#: Programs that leave a map while a thousand batches wait. They print whether all were computed.
PROLOGUE = """
import atexit, os, time
import torch

computed = []
atexit.register(lambda: print(len(computed) < 1000))  # It runs after impl's handler.

import impl

class Slow(torch.nn.Linear):
    def forward(self, x):
        computed.append(x)
        time.sleep(0.05)
        return super().forward(x)

wrapper = impl.DataParallel(Slow(2, 2).eval(), ["cpu"] * 2)
torch.set_grad_enabled(False)
outputs = wrapper.map([torch.ones(2, 2)] * 1000, in_flight=1000)
next(outputs)

def run_in_child(function):
    child = os.fork()
    if child == 0:
        try:
            function()
        except RuntimeError as error:
            os._exit("parent process" not in str(error))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
PROGRAMS = {
    "the program exits": "",
    "the generator is dropped": "del outputs",
    "the generator is closed": "outputs.close()",
    "a forked child closes it": "run_in_child(outputs.close)",
    "a forked child asks for an output": "run_in_child(lambda: [*outputs])",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_batches_that_wait_are_dropped_when(program):
    completed = run_program(f"{PROLOGUE}\n{program}")
    assert (completed.stdout, completed.stderr) == ("True\n", "")


def test_close_warns_of_a_hidden_change(topology):
    batches = batches_of([2] * 4, topology.device(0))
    with torch.no_grad():
        outputs = change_in_silence(wrapped(topology, 2), batches)
        with pytest.warns(RuntimeWarning, match="'weight' has changed"):
            outputs.close()
