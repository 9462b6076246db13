"""impl._installation: torch.nn.parallel's names are impl's, for as long as asked for."""

import contextlib
import importlib
import io
import pickle
import re
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import impl
from impl import _installation

#: The reference's own objects, and where they were found before any test.
SHELF = "torch.nn.parallel"
PARALLEL = importlib.import_module(SHELF)
REFERENCE = nn.DataParallel
SUBMODULES = [name for name in _installation._MODULES if name != "torch.cuda.comm"]
OLD = {name: sys.modules[name] for name in SUBMODULES}
REPLACED = ("torch.nn.parallel", "torch.cuda.comm")
DISTRIBUTED = importlib.import_module("torch.nn.parallel.distributed")

#: How programs name what is replaced, and what it is then.
NAMED = [
    ("from torch.nn import DataParallel as it", "impl.DataParallel"),
    ("import torch; it = torch.nn.DataParallel", "impl.DataParallel"),
    ("import torch; it = torch.nn.parallel.DataParallel", "impl.DataParallel"),
    ("from torch.nn.parallel.data_parallel import DataParallel as it", "impl.DataParallel"),
    ("import torch; it = torch.nn.parallel.data_parallel", "impl.data_parallel"),
    ("from torch.nn.parallel import data_parallel as it", "impl.data_parallel"),
    ("from torch.nn.parallel.data_parallel import data_parallel as it", "impl.data_parallel"),
    ("from torch.nn.parallel import parallel_apply as it", "impl.parallel_apply"),
    ("import torch.nn.parallel.parallel_apply as it", "impl.parallel_apply"),
    ("import torch.nn.parallel.parallel_apply; it = torch.nn.parallel.parallel_apply",
     "impl.parallel_apply"),
    ("from torch.nn.parallel.parallel_apply import get_a_var as it",
     "sys.modules['impl.parallel_apply'].get_a_var"),
    ("from torch.nn.parallel import replicate as it", "impl.replicate"),
    ("from torch.nn.parallel.replicate import replicate as it", "impl.replicate"),
    ("from torch.nn.parallel import scatter as it", "impl.scatter"),
    ("from torch.nn.parallel import gather as it", "impl.gather"),
    ("from torch.nn.parallel.scatter_gather import gather as it", "impl.gather"),
    ("from torch.nn.parallel.scatter_gather import scatter_kwargs as it",
     "impl.scatter_gather.scatter_kwargs"),
    ("from torch.nn.parallel import scatter_gather as it", "impl.scatter_gather"),
    ("import torch.nn.parallel.scatter_gather as it", "impl.scatter_gather"),
    ("from torch.nn.parallel._functions import Scatter as it", "impl.functions.Scatter"),
    ("from torch.nn.parallel._functions import _get_stream as it", "impl.functions._get_stream"),
    ("from torch.nn.parallel import _functions as it", "impl._functions"),
    ("from torch.nn.parallel import comm as it", "impl.comm"),
    ("import torch.nn.parallel.comm as it", "impl.comm"),
    ("from torch.nn.parallel.comm import broadcast_coalesced as it",
     "impl.comm.broadcast_coalesced"),
    ("from torch.nn.parallel.comm import _handle_complex as it", "impl.comm._handle_complex"),
    ("from torch.nn.parallel.replicate import _broadcast_coalesced_reshape as it",
     "sys.modules['impl.replicate']._broadcast_coalesced_reshape"),
    ("from torch.nn.parallel.data_parallel import _check_balance as it",
     "sys.modules['impl.data_parallel']._check_balance"),
    ("from torch.nn.parallel.parallel_apply import _get_device_index as it",
     "sys.modules['impl.parallel_apply']._get_device_index"),
    ("import torch.cuda.comm as it", "impl.comm"),
    ("import torch.cuda.comm; it = torch.cuda.comm", "impl.comm"),
    ("from torch.cuda import comm as it", "impl.comm"),
    ("from torch.cuda.comm import reduce_add as it", "impl.comm.reduce_add"),
    ("import importlib; it = importlib.import_module('torch.nn.parallel.replicate')",
     "sys.modules['impl.replicate']"),
]  # fmt: skip


def state():
    """What install may change: modules of the reference, and the names in their packages."""
    modules = {name: each for name, each in sys.modules.items() if name.startswith(REPLACED)}
    others = {"DataParallel": nn.DataParallel, "comm": getattr(torch.cuda, "comm", None)}
    found = (modules, vars(PARALLEL), others)
    return [[(key, id(value)) for key, value in each.items()] for each in found]


@pytest.fixture(autouse=True)
def _nothing_is_left(recwarn):
    """Tests of the suite have taken names of the reference, of which install warns."""
    warnings.simplefilter("ignore", UserWarning)
    before = state()
    yield
    impl.uninstall()
    assert state() == before


@pytest.fixture
def early(monkeypatch):
    """A module that took names before."""
    module = types.ModuleType("very_early_bird")
    module.DP, module.comm, module.none, module.fine = REFERENCE, OLD[f"{SHELF}.comm"], None, impl
    module.kwargs = OLD[f"{SHELF}.scatter_gather"].scatter_kwargs
    module.Scatter = OLD[f"{SHELF}._functions"].Scatter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def warned(action, statement="action(**kwargs)", **kwargs):
    """The text of the one warning that a statement gives to the file it stands in, or none."""
    code = compile(statement, "the caller", "exec")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(code, {"action": action, "kwargs": kwargs})
    assert len(caught) <= 1
    assert all(each.filename == "the caller" and str(each.message) for each in caught)
    return str(caught[0].message) if caught else ""


@pytest.mark.parametrize(("statement", "meant"), NAMED, ids=[each[0] for each in NAMED])
def test_a_name_of_the_reference_gives_impls(statement, meant):
    scope, expected = {}, {"impl": impl, "sys": sys}
    with impl.installed():
        exec(statement, scope)
    assert scope["it"] is eval(meant, expected)


@pytest.mark.parametrize(("statement", "meant"), NAMED, ids=[each[0] for each in NAMED])
def test_a_name_of_the_reference_gives_the_references_afterwards(statement, meant):
    impl.install()
    impl.uninstall()
    scope, expected = {}, {"impl": impl, "sys": sys}
    loaded = set(sys.modules)
    exec(statement, scope)
    for name in set(sys.modules) - loaded:  # torch.cuda.comm, which nothing loads by itself
        del sys.modules[name]
        vars(torch.cuda).pop("comm", None)
    assert scope["it"] is not eval(meant, expected)


def test_every_public_function_that_both_have_is_in_place():
    with impl.installed():
        for name, old in OLD.items():
            new = sys.modules[name]
            assert new is not old
            ours = [each for each in getattr(old, "__all__", ()) if hasattr(new, each)]
            assert ours == list(getattr(old, "__all__", ()))
        public = [getattr(PARALLEL, each) for each in PARALLEL.__all__]
    theirs = [each for each in public if each.__module__.startswith("torch.")]
    assert theirs == [DISTRIBUTED.DistributedDataParallel]


def test_distributed_data_parallel_stays_with_all_that_it_took():
    before = dict(vars(DISTRIBUTED))
    with impl.installed(rebind=True):
        assert sys.modules["torch.nn.parallel.distributed"] is PARALLEL.distributed is DISTRIBUTED
        assert PARALLEL.DistributedDataParallel is before["DistributedDataParallel"]
        assert vars(DISTRIBUTED) == before
        assert DISTRIBUTED.scatter_kwargs is OLD["torch.nn.parallel.scatter_gather"].scatter_kwargs


def test_uninstall_restores_every_entry_in_its_order():
    before = state()
    impl.install()
    assert state() != before
    impl.uninstall()
    assert state() == before


def test_calls_are_not_counted():
    before = state()
    for _ in range(3):
        impl.install()
    impl.uninstall()
    assert state() == before
    impl.uninstall()
    assert state() == before


def test_a_second_call_warns_of_nothing(early):
    assert early.__name__ in warned(impl.install)
    assert warned(impl.install) == ""


def test_a_block_ends_what_it_began():
    before = state()
    with contextlib.suppress(KeyError), impl.installed():
        assert nn.DataParallel is impl.DataParallel
        raise KeyError
    assert state() == before


def test_nested_blocks_end_with_the_outermost():
    before = state()
    with impl.installed():
        inside = state()
        with impl.installed(), impl.installed():
            assert state() == inside
        assert state() == inside
    assert state() == before


def test_a_block_leaves_what_was_installed_before_it():
    impl.install()
    before = state()
    with impl.installed():
        pass
    assert state() == before


def test_a_block_returns_to_what_was_uninstalled_within_it(early):
    impl.install(rebind=True)
    before = state()
    with impl.installed():
        impl.uninstall()
        assert (nn.DataParallel, early.DP) == (REFERENCE, REFERENCE)
    assert state() == before
    assert early.DP is impl.DataParallel


def test_a_block_undoes_what_was_rebound_in_place_of_what_was_before(early):
    old = REFERENCE  # This module's own name is rebound, too.
    impl.install(rebind=True)
    with impl.installed():
        impl.uninstall()
        early.DP, early.another = nn.Identity, old
        impl.install(rebind=True)
        assert (early.DP, early.another) == (nn.Identity, impl.DataParallel)
    assert (early.DP, early.another) == (impl.DataParallel, old)


def test_a_block_ends_what_was_installed_within_it():
    before = state()
    with impl.installed():
        impl.uninstall()
        impl.install()
    assert state() == before


def test_a_block_that_rebinds_undoes_that_alone(early):
    impl.install()
    with impl.installed(rebind=True):
        assert early.DP is impl.DataParallel
    assert early.DP is REFERENCE
    assert nn.DataParallel is impl.DataParallel


def test_what_somebody_else_put_there_meanwhile_stays(monkeypatch):
    impl.install()
    monkeypatch.setattr(nn, "DataParallel", nn.Identity)
    impl.uninstall()
    assert nn.DataParallel is nn.Identity
    monkeypatch.undo()
    assert nn.DataParallel is impl.DataParallel
    nn.DataParallel = REFERENCE


def test_a_second_call_takes_the_place_of_what_somebody_else_put_there():
    impl.install()
    nn.DataParallel = nn.Identity
    impl.install()
    assert nn.DataParallel is impl.DataParallel
    impl.uninstall()
    assert nn.DataParallel is nn.Identity
    nn.DataParallel = REFERENCE


def test_the_warning_names_modules_and_names(early):
    text = warned(impl.install)
    assert "very_early_bird: DP, Scatter, comm, kwargs" in text
    assert "they stay; rebind=True replaces them" in text
    assert not re.search(r"[:;] torch\.(nn|nn\.parallel|cuda): ", text)
    assert early.DP is REFERENCE


def test_a_block_rebinds_on_request_only(early):
    old = REFERENCE  # This module's own name would be rebound, too.
    with impl.installed():
        assert early.DP is old


def test_a_block_warns_where_it_begins(early):
    assert early.__name__ in warned(impl.installed, "with action(): pass")


def test_modules_are_rebound_on_request_and_restored(early):
    before = list(vars(early).items())
    text = warned(impl.install, rebind=True)
    assert "they are rebound" in text
    assert (early.DP, early.comm) == (impl.DataParallel, impl.comm)
    assert early.kwargs is impl.scatter_gather.scatter_kwargs
    assert early.Scatter is impl.functions.Scatter
    assert (early.none, early.fine) == (None, impl)
    impl.uninstall()
    assert list(vars(early).items()) == before


def test_names_that_the_reference_has_from_elsewhere_are_not_rebound(early):
    elsewhere = torch._utils._get_device_index
    early.index = OLD[f"{SHELF}.comm"]._get_device_index
    impl.install(rebind=True)
    assert importlib.import_module("torch.nn.parallel.comm")._get_device_index is not elsewhere
    assert early.index is torch._utils._get_device_index is elsewhere


def test_modules_may_be_rebound_later(early):
    impl.install()
    assert "they are rebound" in warned(impl.install, rebind=True)
    assert early.DP is impl.DataParallel
    impl.uninstall()
    assert early.DP is REFERENCE


def test_a_rebound_name_that_its_module_has_changed_stays(early):
    impl.install(rebind=True)
    early.DP = nn.Identity
    impl.uninstall()
    assert early.DP is nn.Identity


def test_a_missing_module_of_the_reference_means_nothing_elsewhere(early, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.nn.parallel.comm", None)
    impl.install(rebind=True)
    assert early.none is None
    assert importlib.import_module("torch.nn.parallel.comm") is impl.comm


def test_without_the_reference_nothing_changes(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.nn.parallel", None)
    before = list(sys.modules.items())
    with pytest.raises(ImportError):
        impl.install()
    assert list(sys.modules.items()) == before
    assert nn.DataParallel is REFERENCE


def test_where_warnings_are_errors_nothing_changes(early):
    before = state()
    warnings.simplefilter("error")
    with pytest.raises(UserWarning, match=early.__name__):
        impl.install()
    assert state() == before


def test_the_warning_names_classes_that_were_derived_before():
    class Derived(REFERENCE):
        pass

    class Further(Derived):
        pass

    text = warned(impl.install)
    for each in (Derived, Further):
        assert f"{each.__module__}.{each.__qualname__}" in text
        assert not issubclass(each, nn.DataParallel)
    assert warned(impl.install, rebind=True)
    assert warned(impl.install, rebind=True) == ""


@pytest.mark.parametrize("modules", [[], ["one", "other"]], ids="modules={}".format)
@pytest.mark.parametrize("classes", [[], ["one.A", "other.B"]], ids="classes={}".format)
def test_the_warning_names_what_there_is(modules, classes):
    taken = [(each, _installation._Change({}, "DP", REFERENCE, impl)) for each in modules]
    told = warned(_installation._warn, found=taken, derived=classes, rebind=False, level=2)
    expected = []
    if modules:
        expected.append(
            "taken from torch.nn.parallel before it was replaced, they stay; rebind=True replaces "
            "them: one: DP; other: DP"
        )
    if classes:
        expected.append("derived from what was replaced, and stay so: one.A, other.B")
    assert told.splitlines() == expected


def test_what_was_wrapped_before_stays_the_references():
    wrapped = REFERENCE(nn.Linear(2, 1))
    with impl.installed():
        assert not isinstance(wrapped, nn.DataParallel)
        with pytest.raises(pickle.PicklingError):
            pickle.dumps(wrapped)
    assert isinstance(wrapped, nn.DataParallel)


def test_what_was_wrapped_before_computes_with_the_references_functions(topology, monkeypatch):
    devices = topology.take(2)
    wrapped = REFERENCE(nn.Linear(2, 1).to(devices[0]), devices)
    for name in ("scatter_kwargs", "replicate", "parallel_apply", "gather"):
        monkeypatch.setattr(sys.modules["impl.data_parallel"], name, refuse)
    with impl.installed():
        assert wrapped(torch.ones(4, 2, device=devices[0])).shape == (4, 1)


def refuse(*args, **kwargs):
    raise AssertionError


def test_nothing_of_the_reference_is_called(topology, monkeypatch):
    for module in OLD.values():
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                monkeypatch.setattr(module, name, refuse)
    devices = topology.take(2)
    with impl.installed():
        wrapped = nn.DataParallel(nn.Linear(2, 1).to(devices[0]), devices)
        wrapped(torch.ones(4, 2)).sum().backward()
    assert wrapped.module.weight.grad.tolist() == [[4.0, 4.0]]


def unwrapped(model):
    """Take wrappers off, as training libraries do."""
    kinds = (nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    while isinstance(model, kinds):
        model = model.module
    return model


def test_wrapped_models_are_recognised_and_unwrapped():
    net = nn.Linear(2, 1)
    wrapped = impl.DataParallel(impl.DataParallel(net, ["cpu", "cpu"]))
    assert unwrapped(wrapped) is wrapped
    with impl.installed():
        assert isinstance(wrapped, torch.nn.DataParallel)
        assert unwrapped(wrapped) is net


def test_functional_call_takes_the_module_and_not_its_wrapper(topology):
    devices = topology.take(2)
    net = nn.Linear(2, 1).to(devices[0])
    values = {
        "weight": torch.ones(1, 2, device=devices[0]),
        "bias": torch.ones(1, device=devices[0]),
    }
    named = {f"module.{name}": value for name, value in values.items()}
    x = torch.ones(4, 2, device=devices[0])
    refusals = []
    for block in (impl.installed(), impl.installed(rebind=True), threading.Lock()):
        with block:
            wrapped = nn.DataParallel(net, devices)
            with pytest.raises(RuntimeError) as caught:
                torch.func.functional_call(wrapped, named, x)
            refusals.append(str(caught.value))
            found = torch.func.functional_call(wrapped.module, values, x)
            assert found.tolist() == [[3.0]] * 4
    # The last is the reference itself.
    assert len(set(refusals)) == 1
    # Nobody takes an impl that is not installed for the DataParallel that is refused.
    found = torch.func.functional_call(impl.DataParallel(net, devices), named, x)
    assert found.tolist() == [[3.0]] * 4


def test_models_pickled_by_the_reference_are_impls_meanwhile(topology):
    devices = topology.take(2)
    old = REFERENCE(nn.Linear(2, 1).to(devices[0]), devices)
    stored = io.BytesIO()
    torch.save(old, stored)
    stored.seek(0)
    with impl.installed():
        new = torch.load(stored, weights_only=False)
    assert type(new) is impl.DataParallel
    x = torch.ones(4, 2, device=devices[0])
    assert torch.equal(new(x), old(x))


def test_models_pickled_meanwhile_name_impl():
    with impl.installed():
        stored = pickle.dumps(nn.DataParallel(nn.Linear(2, 1), ["cpu", "cpu"]))
    assert type(pickle.loads(stored)) is impl.DataParallel


def losses(devices):
    """Train through whatever ``torch.nn.DataParallel`` is; give its home, too."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 2))
    wrapped = torch.nn.DataParallel(net.to(devices[0]), devices)
    optimiser = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    found = []
    for size in (12, 15, 11, 16):
        x = torch.randn(size, 5, device=devices[0])
        loss = wrapped(x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found, type(wrapped).__module__


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
@pytest.mark.filterwarnings("ignore:PyTorch is not compiled with NCCL support")
def test_training_gives_the_references_losses(topology, slots):
    devices = topology.take(slots)
    reference, home = losses(devices)
    with impl.installed():
        ours, our_home = losses(devices)
    assert (home, our_home) == ("torch.nn.parallel.data_parallel", "impl.data_parallel")
    assert len(set(reference)) == len(reference)
    assert ours == reference


def in_a_thread(action):
    """What ``action`` returns in a thread of its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()
    thread.join()
    return found[0]


def test_other_threads_see_it():
    assert in_a_thread(lambda: nn.DataParallel) is REFERENCE
    in_a_thread(impl.install)
    assert nn.DataParallel is in_a_thread(lambda: nn.DataParallel) is impl.DataParallel


@pytest.mark.parametrize("step", ["make", "undo"])
def test_one_thread_at_a_time_changes_names(monkeypatch, step):
    free = []

    def change(self):
        free.append(in_a_thread(lambda: _installation._lock.acquire(blocking=False)))
        real(self)

    real = getattr(_installation._Change, step)
    monkeypatch.setattr(_installation._Change, step, change)
    impl.install()
    impl.uninstall()
    assert set(free) == {False}


EARLY = """
from torch.nn import DataParallel as DP
from torch.nn.parallel import scatter_gather, parallel_apply
import impl, sys, torch

assert "torch.cuda.comm" not in sys.modules
impl.install(rebind={rebind})
import torch.cuda.comm as comm
print(DP is impl.DataParallel, scatter_gather is impl.scatter_gather, comm is impl.comm)
impl.uninstall()
assert "torch.cuda.comm" not in sys.modules and not hasattr(torch.cuda, "comm")
import torch.cuda.comm as comm
print(DP is torch.nn.DataParallel, comm is not impl.comm)
"""


@pytest.mark.parametrize(
    ("rebind", "what"),
    [(False, "they stay; rebind=True replaces them"), (True, "they are rebound")],
)
def test_a_script_that_named_things_early(rebind, what):
    done = subprocess.run(
        [sys.executable, "-c", EARLY.format(rebind=rebind)],
        cwd=Path(__file__).resolve().parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{rebind} {rebind} True\nTrue True\n"
    taken = "__main__: DP, parallel_apply, scatter_gather"
    text = f"taken from torch.nn.parallel before it was replaced, {what}: {taken}"
    assert done.stderr.splitlines() == [f"<string>:7: UserWarning: {text}"]
