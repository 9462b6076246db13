"""impl._threads.state: what a replica's thread takes over, and what it leaves behind."""

import contextvars
import gc
import sys
import threading
import weakref
from contextlib import ExitStack

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from impl._device import device as device_module
from impl._threads import state as thread_state
from impl.parallel_apply import parallel_apply
from impl_tests.samples import FunctionMode
from spec_tests.harness.environment.topology import not_run
from spec_tests.strategies.thread_state import sight, sights, thread_states

CPU = torch.device("cpu")
WORD = contextvars.ContextVar("WORD", default="unset")


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


STAY_BEHIND = {
    "function mode": FunctionMode,
    "dispatch mode": DispatchMode,
    "saved tensors": lambda: saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor),
}


@pytest.fixture
def tracing():
    """Hooks on saved tensors are not applied, as while a graph is traced."""
    torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    yield
    torch._C._autograd._saved_tensors_hooks_set_tracing(False)


@pytest.fixture
def hidable(monkeypatch):
    """An interpreter that hides what a thread holds; since CPython 3.13 that is taken to be so.

    Nor does it trace threads each in its own way, as it does when coverage is measured.
    """
    monkeypatch.setattr(thread_state, "can_be_fresh", lambda: True)
    monkeypatch.setattr(thread_state, "_has_private_hooks", lambda: False)


def run_in(state, function, *args):
    return state.context.run(thread_state.call_in, state, function, args, {})


def in_new_thread(function, *args):
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(function(*args)))
    thread.start()
    thread.join()
    return outcomes[0]


def state_for(device=CPU):
    return thread_state.thread_states([device])[0]


def meddle(device):
    """Change everything that travels, and mend none of it."""
    torch.set_grad_enabled(not torch.is_grad_enabled())
    for kind in ("cpu", device.type):
        torch.set_autocast_enabled(kind, not torch.is_autocast_enabled(kind))
        torch.set_autocast_dtype(kind, torch.float16)
    torch.set_autocast_cache_enabled(not torch.is_autocast_cache_enabled())
    torch.set_default_device("meta")
    WORD.set("meddled with")
    torch.accelerator.set_stream(torch.Stream(device))


@given(state=thread_states(), slot=st.integers(0, 3))
def test_another_thread_sees_what_the_caller_sees(topology, state, slot):
    device = topology.device(slot)
    with state.entered(topology):
        expected = sights([device])[0]
        assert in_new_thread(run_in, state_for(device), sight, device) == expected


@given(state=thread_states(), slot=st.integers(0, 3))
def test_what_is_changed_in_a_replica_is_undone_in_its_thread(topology, state, slot):
    device = topology.device(slot)

    def before_and_after(taken):
        before = sights(topology.devices)
        run_in(taken, meddle, device)
        return before, sights(topology.devices), thread_state.is_pristine()

    with state.entered(topology):
        before, after, is_pristine = in_new_thread(before_and_after, state_for(device))
    assert after == before
    assert is_pristine


@given(state=thread_states(), slot=st.integers(0, 3))
def test_what_is_changed_in_a_replica_is_undone_in_the_callers_thread(topology, state, slot):
    device = topology.device(slot)
    with state.entered(topology):
        before = sights(topology.devices), WORD.get()
        run_in(state_for(device), meddle, device)
        assert (sights(topology.devices), WORD.get()) == before


def test_a_replica_on_the_cpu_keeps_the_callers_current_device(topology):
    last = topology.devices[-1].index
    with torch.accelerator.device_index(last):
        state = state_for(CPU)
    assert in_new_thread(run_in, state, torch.accelerator.current_device_index) == last


def test_each_replica_has_its_own_context_variables():
    WORD.set("of the caller")
    first, second = thread_state.thread_states([CPU, CPU])
    run_in(first, WORD.set, "of the first")
    assert run_in(second, WORD.get) == "of the caller"


def test_a_thread_follows_the_callers_number_of_threads():
    count = torch.get_num_threads()
    born, go, seen = threading.Event(), threading.Event(), []

    def worker():
        seen.append(torch.get_num_threads())
        born.set()
        go.wait()
        seen.append(run_in(state, torch.get_num_threads))

    thread = threading.Thread(target=worker)
    thread.start()
    born.wait()
    try:
        torch.set_num_threads(count + 1)
        state = state_for()
    finally:
        go.set()
        thread.join()
        torch.set_num_threads(count)
    assert seen == [count, count + 1]


def test_casts_cached_in_a_thread_are_dropped_with_its_replica():
    weight = nn.Parameter(torch.ones(2, 2))
    witness = weakref.ref(weight)
    gc.collect()
    with torch.autocast("cpu", torch.bfloat16):
        in_new_thread(run_in, state_for(), nn.functional.linear, torch.ones(1, 2), weight)
        del weight
        assert witness() is None


def test_a_replica_that_switches_autocast_off_leaves_no_region_open():
    dtype = torch.get_autocast_dtype("cpu")

    def switch_off():
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", dtype)

    def regions():
        run_in(state, switch_off)
        torch.autocast_increment_nesting()
        return torch.autocast_decrement_nesting()

    with torch.autocast("cpu", torch.float16):
        state = state_for()
    assert in_new_thread(regions) == 0


@pytest.mark.usefixtures("hidable")
def test_a_plain_thread_and_a_default_device_travel_whole():
    assert thread_state.travels_whole()
    with torch.device("meta"):
        assert thread_state.travels_whole()


@pytest.mark.usefixtures("hidable")
@pytest.mark.parametrize("make", STAY_BEHIND.values(), ids=STAY_BEHIND)
def test_what_stays_behind_is_noticed(make):
    with make():
        assert not thread_state.travels_whole()
    assert thread_state.travels_whole()


@pytest.mark.usefixtures("hidable")
def test_a_transform_stays_behind():
    seen = []
    torch.func.vmap(lambda x: seen.append(thread_state.travels_whole()) or x)(torch.ones(1))
    assert seen == [False]


def test_an_exception_being_handled_stays_behind():
    try:
        raise ValueError("of the caller")
    except ValueError:
        assert not thread_state.travels_whole()


@pytest.mark.parametrize(
    "enter",
    [*STAY_BEHIND.values(), torch.inference_mode, lambda: torch.device("meta")],
    ids=[*STAY_BEHIND, "inference mode", "default device"],
)
def test_a_thread_in_which_something_is_left_is_not_pristine(enter):
    def look():
        with ExitStack() as stack:
            before = thread_state.is_pristine()
            stack.enter_context(enter())
            return before, thread_state.is_pristine()

    assert in_new_thread(look) == (True, False)


class SettingDevice(nn.Module):
    def forward(self):
        torch.set_default_device("sim:1")


@pytest.mark.parametrize("own", [None, "cpu", "meta"], ids="set={}".format)
@pytest.mark.usefixtures("sim")
def test_a_single_module_leaves_the_default_device_that_the_caller_has_set(own):
    torch.set_default_device(own)
    try:
        before = torch.get_default_device()
        parallel_apply([SettingDevice()], [()], devices=[0])
        assert torch.get_default_device() == before
    finally:
        torch.set_default_device(None)


def test_without_an_accelerator_the_cpu_is_all_there_is(monkeypatch):
    monkeypatch.setattr(thread_state, "accelerator_type", lambda: None)
    assert thread_state._scope([torch.device("sim:0")]) == (("cpu",), range(0))


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_every_device_of_an_accelerator_in_use_is_looked_at(topology, kind):
    ordinals = range(torch.accelerator.device_count())
    scope = thread_state._scope([torch.device(kind)])
    assert scope == (("cpu", topology.accelerator), ordinals)


def test_an_accelerator_that_is_not_in_use_is_not_asked_for_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.sim, "is_initialized", lambda: False)
    cpu, other = torch.device("cpu"), torch.device("sim", 0)
    assert thread_state._scope([cpu, cpu]) == (("cpu",), range(0))
    assert thread_state._scope([cpu, other]).ordinals


def test_an_accelerator_that_is_not_in_use_has_no_current_device_for_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.sim, "is_initialized", lambda: False)
    monkeypatch.setattr(thread_state, "current_device", lambda: pytest.fail("asked"))
    (state,) = thread_state.thread_states([CPU])
    assert state.device == CPU


def test_an_accelerator_may_have_no_autocast(topology, monkeypatch):
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda kind: False)
    assert thread_state._scope([topology.device(0)]).autocast_types == ("cpu",)


def test_an_accelerator_that_cannot_tell_is_not_in_use(monkeypatch):
    monkeypatch.delattr(torch.sim, "is_initialized")
    assert device_module.accelerator_in_use() is None


def test_no_accelerator_is_not_in_use(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert device_module.accelerator_in_use() is None


def test_a_default_device_that_is_not_wanted_is_not_entered():
    wanted = thread_state._read_flags(thread_state._scope([torch.device("cpu")]))
    before = wanted._replace(default_device=torch.device("meta"))
    with thread_state._enter_contexts(before, wanted):
        assert torch.ones(1).device.type == "cpu"


@pytest.mark.usefixtures("hidable", "tracing")
def test_hooks_on_saved_tensors_stay_behind_while_a_graph_is_traced():
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        assert not thread_state.travels_whole()
    assert thread_state.travels_whole()


def hook(*_):
    return hook


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_hooks_of_this_thread_alone_stay_behind(kind):
    def ask():
        found = [thread_state._has_private_hooks()]
        for each in (hook, None):
            getattr(sys, f"set{kind}")(each)
            found.append(thread_state._has_private_hooks())
        return found

    if threading.gettrace() or threading.getprofile():
        not_run("all threads are traced, for coverage")
    assert in_new_thread(ask) == [False, True, False]


def test_the_running_thread_takes_up_a_profiler():
    before = threading.getprofile()
    try:
        threading.setprofile(hook)
        thread_state.take_up_hooks()
        found = sys.getprofile()
    finally:
        threading.setprofile(before)
        thread_state.take_up_hooks()
    assert found is hook
    assert sys.getprofile() is before


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_a_thread_takes_up_the_hooks_of_threads_that_begin_now(kind):
    getter, setter = getattr(sys, f"get{kind}"), getattr(threading, f"set{kind}")
    before = getattr(threading, f"get{kind}")()

    def take_up():
        seen = []
        for each in (hook, before):
            setter(each)
            thread_state.take_up_hooks()
            seen.append(getter())
        return seen

    try:
        assert in_new_thread(take_up) == [hook, before]
    finally:
        setter(before)


def test_what_is_at_rest_is_read_again_where_there_is_more_to_look_at(topology):
    little = thread_state._Scope(("cpu",), range(0))
    much = thread_state._scope([topology.device(0)])

    def read():
        return [len(thread_state._flags_at_rest(scope).streams) for scope in (little, much)]

    assert in_new_thread(read) == [0, len(much.ordinals)]
    assert len(much.ordinals) > 0
