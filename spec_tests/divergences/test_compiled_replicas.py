"""Replicas of compiled modules run compiled code, which the reference destroys: RE-1."""

import sys
import threading
import weakref

import pytest
import torch
from torch import nn

from spec_tests.divergences.compile_backends import SETTING, Broken, Counting, Meeting
from spec_tests.divergences.compiled import HOW
from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.leaks import all_freed, no_garbage_collection
from spec_tests.harness.conformance.clauses import clause

ONCE = clause("divergences.RE-1.compiled-once-a-device")
TURNS = clause("divergences.RE-1.compiled-replicas-in-turn")
BACKWARD = clause("divergences.RE-1.backward-through-compiled-replicas")
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)
ways = pytest.mark.parametrize("how", list(HOW))


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    """What other tests have compiled counts towards PyTorch's limit of recompilations."""
    torch.compiler.reset()


class Layers(nn.Module):
    """Of a class of its own, as m.compile() compiles nothing of those in torch.nn."""

    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.other = nn.Linear(4, 4)

    def forward(self, x):
        return self.other(self.one(x).tanh())


def wrapped(target, topology, module, devices=3, **options):
    placed = topology.take(devices)
    rows = torch.rand(devices * 2, 4, device=placed[0])
    return target.data_parallel.DataParallel(module.to(placed[0]), placed, **options), rows


def flat(tensors):
    return torch.cat([each.detach().cpu().flatten() for each in tensors])


def step(parallel, rows):
    """One iteration; gives outputs and gradients."""
    parallel.zero_grad()
    out = parallel(rows)
    out.square().sum().backward()
    return flat([out, *(each.grad for each in parallel.parameters())])


def uncompiled(function, *args):
    """What a function gives where nothing compiled runs."""
    with torch.compiler.set_stance("force_eager"):
        return function(*args)


@ONCE
@ways
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_code_is_made_once_a_device(target, topology, how, devices):
    backend = Counting()
    parallel, rows = wrapped(target, topology, HOW[how](Layers(), backend), devices)
    for _ in range(3):
        step(parallel, rows)
    # Two slots of one device need no code of their own.
    checks.same(backend.devices, list(dict.fromkeys(topology.take(devices))), how)


@ONCE
@ways
def test_code_is_made_once_for_evaluation_too(target, topology, how):
    backend = Counting()
    parallel, rows = wrapped(target, topology, HOW[how](Layers(), backend))
    for _ in range(2):
        step(parallel.train(), rows)
        with torch.no_grad():
            parallel.eval()(rows)
    devices = list(dict.fromkeys(topology.take(3)))
    checks.same(backend.devices, devices * 2, how)


@ONCE
@ways
def test_held_replicas_run_compiled_code(target, topology, how):
    backend = Counting()
    parallel, rows = wrapped(target, topology, HOW[how](Layers(), backend))
    with torch.no_grad(), parallel.eval().hold():
        found = flat(parallel(rows) for _ in range(3))
        expected = flat([uncompiled(parallel.module, rows)] * 3)
    checks.same(found, expected, how, tolerance=checks.LAYER)
    checks.same(len(backend.devices), len(set(topology.take(3))), how)


@ONCE
def test_each_compiled_module_has_code_of_its_own(target, topology):
    backends = [Counting(), Counting()]
    for backend in backends:
        step(*wrapped(target, topology, HOW["torch.compile(m)"](Layers(), backend)))
    counts = [len(backend.devices) for backend in backends]
    checks.same(counts, [len(set(topology.take(3)))] * 2)


@ONCE
def test_a_module_compiled_anew_gets_new_code(target, topology):
    first, second = Counting(), Counting()
    module = Layers()
    for backend in (first, second, second):
        module.compile(backend=backend)
        step(*wrapped(target, topology, module))
    # Compiling twice in the same way makes the code twice, as it does without replicas.
    devices = len(set(topology.take(3)))
    checks.same([len(first.devices), len(second.devices)], [devices, 2 * devices])


@ONCE
def test_a_graph_break_is_no_error(target, topology):
    backend = Counting()
    parallel, rows = wrapped(target, topology, torch.compile(Broken(), backend=backend))
    found, expected = step(parallel, rows), uncompiled(step, parallel, rows)
    checks.same(found, expected, tolerance=checks.LAYER)
    assert backend.devices


@ONCE
def test_options_are_kept(target, topology):
    backend = Counting()
    module = torch.compile(Broken(), backend=backend, fullgraph=True)
    parallel, rows = wrapped(target, topology, module)
    with pytest.raises(Exception, match="in replica 0 on device"):
        parallel(rows)
    checks.same(backend.devices, [])


class Noting(nn.Module):
    """Notes the thread and the device that it is called in, and when the call has ended."""

    def __init__(self, noted):
        super().__init__()
        self.noted = noted

    def forward(self, x):
        self.noted.append(("begins", threading.get_ident(), x.device))
        self.noted.append(("ends", threading.get_ident(), x.device))
        return x


@TURNS
@ways
def test_replicas_run_in_the_callers_thread_in_order(target, topology, how):
    noted = []
    module = nn.Sequential(Noting(noted), HOW[how](Layers(), "eager"), Noting(noted))
    parallel, rows = wrapped(target, topology, module)
    parallel(rows)
    events = [(w, device) for device in topology.take(3) for w in ("begins", "ends") * 2]
    checks.same([(what, device) for what, _, device in noted], events, how)
    if sys.version_info < (3, 13):  # Later ones can hide nothing that the caller's thread holds.
        assert {thread for _, thread, _ in noted} == {threading.get_ident()}


class Refusing(nn.Module):
    """Refuses to compute on the second device and later ones."""

    def __init__(self, devices, noted):
        super().__init__()
        self.noted, self.devices = noted, devices

    def forward(self, x):
        self.noted.append(x.device)
        if self.devices.index(x.device):
            raise LookupError("no rows here")
        return x


@TURNS
def test_all_run_and_the_first_error_is_raised(target, topology):
    topology.require(distinct=3)
    noted = []
    module = nn.Sequential(
        HOW["torch.compile(m)"](Layers(), "eager"), Refusing(topology.take(3), noted)
    )
    parallel, rows = wrapped(target, topology, module)
    with pytest.raises(LookupError, match="in replica 1 on device"):
        parallel(rows)
    checks.same(noted, topology.take(3))


@TURNS
def test_an_error_in_compiled_code_tells_the_replica(target, topology):
    parallel, rows = wrapped(target, topology, HOW["torch.compile(m)"](Layers(), "eager"))
    with pytest.raises(Exception, match="in replica 0 on device"):
        parallel(rows[:, :3])


@TURNS
@ways
def test_replicas_go_with_their_call(target, topology, how):
    module = HOW[how](Layers(), "eager")
    placed = topology.take(2)
    rows = [torch.rand(2, 4, device=device) for device in placed]
    with no_garbage_collection():
        replicas = target.replicate.replicate(module.to(placed[0]), placed)
        references = [weakref.ref(replica) for replica in replicas]
        target.parallel_apply.parallel_apply(replicas, rows, devices=placed)
        del replicas
        assert all_freed(references)


@BACKWARD
@ways
@pytest.mark.parametrize("devices", [2, 3])
def test_compiled_backward_of_all_devices_runs_at_once(target, topology, how, devices):
    topology.require(distinct=devices)
    SETTING.set("of the caller")
    alone, backend = Meeting(1), Meeting(devices)
    parallel, rows = wrapped(target, topology, HOW[how](Layers(), backend), devices)
    step(HOW[how](Layers(), alone).to(rows.device), rows)
    found = step(parallel, rows)
    # Before PyTorch 2.12 that is nothing.
    checks.same(backend.seen, alone.seen * devices, how)
    checks.same(found, uncompiled(step, parallel, rows), how, tolerance=checks.LAYER)


@BACKWARD
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_graph_breaks_do_not_change_gradients(target, topology, backend):
    parallel, rows = wrapped(target, topology, HOW["torch.compile(m)"](Broken(), backend))
    found = [step(parallel, rows) for _ in range(2)]
    expected = [uncompiled(step, parallel, rows)] * 2
    checks.same(flat(found), flat(expected), tolerance=checks.LAYER)


@BACKWARD
def test_gradients_have_gradients_where_the_back_end_can(target, topology):
    module = HOW["torch.compile(m)"](Layers(), "eager")
    parallel, rows = wrapped(target, topology, module)
    found, expected = second_step(parallel, rows), uncompiled(second_step, parallel, rows)
    checks.same(found, expected, tolerance=checks.LAYER)


def second_step(parallel, rows):
    """Gradients of the rows' gradient."""
    rows = rows.detach().requires_grad_()
    (grad,) = torch.autograd.grad(parallel(rows).square().sum(), rows, create_graph=True)
    return flat(torch.autograd.grad(grad.square().sum(), list(parallel.parameters())))


@BACKWARD
def test_gradients_of_gradients_are_refused_where_it_cannot(target, topology):
    parallel, rows = wrapped(target, topology, HOW["torch.compile(m)"](Layers(), "aot_eager"))
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        second_step(parallel, rows)
