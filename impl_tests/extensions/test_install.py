"""impl.extras.install: install() and uninstall() replace and restore names."""

import contextlib
import importlib
import io
import re
import sys
import types
import warnings

import pytest
import torch
from torch import nn

import impl
from impl.extras import install as installation
from spec_tests.machine.processes import run_program

#: torch.nn.parallel (the reference) before any installation: the name of the package, the package,
#: its class DataParallel, and the names of its modules that are replaced.
PACKAGE = "torch.nn.parallel"
PARALLEL = importlib.import_module(PACKAGE)
REFERENCE = nn.DataParallel
SUBMODULES = [name for name in installation._MODULES if name != "torch.cuda.comm"]
#: For each replaced module: the reference's module.
OLD = {name: sys.modules[name] for name in SUBMODULES}
#: Beginnings of the names of the modules that an installation may replace.
REPLACED = ("torch.nn.parallel", "torch.cuda.comm")
DISTRIBUTED = importlib.import_module("torch.nn.parallel.distributed")

#: The module ``impl.replicate``. The attribute ``replicate`` of impl is the function.
REPLICATE_MODULE = sys.modules["impl.replicate"]
#: For each import statement: the object that it binds to ``it`` between install() and uninstall().
IMPORTS = {
    "from torch.nn import DataParallel as it": impl.DataParallel,
    "from torch.nn.parallel.data_parallel import DataParallel as it": impl.DataParallel,
    "import torch.nn.parallel.parallel_apply as it": impl.parallel_apply,
    "from torch.nn.parallel import replicate as it": impl.replicate,
    "from torch.nn.parallel import scatter_gather as it": impl.scatter_gather,
    "from torch.nn.parallel._functions import Scatter as it": impl.functions.Scatter,
    "import torch.nn.parallel.comm as it": impl.comm,
    "import torch.cuda.comm; it = torch.cuda.comm": impl.comm,
    "from torch.cuda import comm as it": impl.comm,
    "from torch.cuda.comm import reduce_add as it": impl.comm.reduce_add,
    "import importlib; it = importlib.import_module('torch.nn.parallel.replicate')": (
        REPLICATE_MODULE
    ),
}


def state():
    """Return the names that an installation may change, each with the id of its object."""
    modules = {name: sys.modules[name] for name in sys.modules if name.startswith(REPLACED)}
    others = {"DataParallel": nn.DataParallel, "comm": getattr(torch.cuda, "comm", None)}
    namespaces = (modules, vars(PARALLEL), others)
    return [[(key, id(value)) for key, value in names.items()] for names in namespaces]


@pytest.fixture(autouse=True)
def _state_is_restored(recwarn):
    """Uninstall impl after the test, and check that the reference is restored.

    Ignore the warning that lists the names that the suite has imported from the reference.
    """
    warnings.simplefilter("ignore", UserWarning)
    before = state()
    yield
    impl.uninstall()
    assert state() == before


@pytest.fixture
def early_module(monkeypatch):
    """A module that imported names of torch.nn.parallel before ``impl.install()``."""
    # install() visits modules in alphabetical order, and skips some of torch. This module comes
    # after them, so the tests fail if the search ends at a skipped module.
    module = types.ModuleType("user_module")
    module.DP, module.comm = REFERENCE, OLD[f"{PACKAGE}.comm"]
    module.none, module.fine = None, impl
    module.kwargs = OLD[f"{PACKAGE}.scatter_gather"].scatter_kwargs
    module.Scatter = OLD[f"{PACKAGE}._functions"].Scatter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def warning_text(action, statement="action(**kwargs)", **kwargs):
    """Run ``statement``; return the text of the warning that it shows, or an empty text."""
    code = compile(statement, "the caller", "exec")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(code, {"action": action, "kwargs": kwargs})
    assert len(caught) <= 1
    assert all(shown.filename == "the caller" and str(shown.message) for shown in caught)
    return str(caught[0].message) if caught else ""


@pytest.mark.parametrize(("statement", "expected"), IMPORTS.items(), ids=IMPORTS)
def test_import_during_an_installation_returns_impls_object(statement, expected):
    scope = {}
    with impl.installed():
        exec(statement, scope)
    assert scope["it"] is expected


def test_installation_replaces_every_public_name_but_distributed_data_parallel():
    with impl.installed():
        for name, old in OLD.items():
            new = sys.modules[name]
            assert new is not old
            public_names = list(getattr(old, "__all__", ()))
            assert [public for public in public_names if hasattr(new, public)] == public_names
        public = [getattr(PARALLEL, name) for name in PARALLEL.__all__]
    not_replaced = [value for value in public if value.__module__.startswith("torch.")]
    assert not_replaced == [DISTRIBUTED.DistributedDataParallel]


def test_distributed_data_parallel_is_not_replaced():
    before = dict(vars(DISTRIBUTED))
    with impl.installed(rebind=True):
        assert sys.modules["torch.nn.parallel.distributed"] is PARALLEL.distributed is DISTRIBUTED
        assert PARALLEL.DistributedDataParallel is before["DistributedDataParallel"]
        assert vars(DISTRIBUTED) == before
        assert DISTRIBUTED.scatter_kwargs is OLD["torch.nn.parallel.scatter_gather"].scatter_kwargs


#: Steps, and after each of them whether ``torch.nn``, and a module that imported its name before,
#: have the class of impl ("x") or not ("-"). "(" and ")" begin and end a block of installed().
HISTORIES = {
    "install install uninstall uninstall": "x- x- -- --",
    "( ( ( ) ) )": "x- x- x- x- x- --",
    "install-rebind ( uninstall )": "xx xx -- --",
    "install (-rebind )": "x- xx x-",
}


@pytest.mark.parametrize(("steps", "expected"), HISTORIES.items())
def test_a_block_undoes_its_installation_and_uninstall_all_of_them(early_module, steps, expected):
    before, blocks, found = state(), [], []
    for step, _, option in (each.partition("-") for each in steps.split()):
        if step == "install":
            impl.install(rebind=bool(option))
        elif step == "uninstall":
            impl.uninstall()
        elif step == "(":
            blocks.append(impl.installed(rebind=bool(option)))
            blocks[-1].__enter__()
        else:
            blocks.pop().__exit__(None, None, None)
        classes = nn.DataParallel, early_module.DP
        found.append("".join("x" if each is impl.DataParallel else "-" for each in classes))
        assert (state() == before) is (found[-1] == "--")
    assert " ".join(found) == expected


def test_second_install_does_not_warn(early_module):
    assert early_module.__name__ in warning_text(impl.install)
    assert warning_text(impl.install) == ""


def test_installed_block_restores_the_reference_after_an_error():
    before = state()
    with contextlib.suppress(KeyError), impl.installed():
        assert nn.DataParallel is impl.DataParallel
        raise KeyError
    assert state() == before


def test_uninstall_keeps_names_that_other_code_has_replaced(monkeypatch):
    impl.install()
    monkeypatch.setattr(nn, "DataParallel", nn.Identity)
    impl.uninstall()
    assert nn.DataParallel is nn.Identity
    monkeypatch.undo()
    assert nn.DataParallel is impl.DataParallel
    nn.DataParallel = REFERENCE


def test_second_install_replaces_names_that_other_code_has_replaced():
    impl.install()
    nn.DataParallel = nn.Identity
    impl.install()
    assert nn.DataParallel is impl.DataParallel
    impl.uninstall()
    assert nn.DataParallel is nn.Identity
    nn.DataParallel = REFERENCE


def test_warning_lists_names_imported_before_the_installation(early_module):
    text = warning_text(impl.install)
    assert "user_module: DP, Scatter, comm, kwargs" in text
    assert "not replaced without rebind=True" in text
    assert not re.search(r"[:;] torch\.(nn|nn\.parallel|cuda): ", text)
    assert early_module.DP is REFERENCE


def test_installed_block_warns_at_its_with_statement(early_module):
    assert early_module.__name__ in warning_text(impl.installed, "with action(): pass")


def test_uninstall_restores_rebound_names(early_module):
    before = list(vars(early_module).items())
    text = warning_text(impl.install, rebind=True)
    assert "rebound: " in text
    assert (early_module.DP, early_module.comm) == (impl.DataParallel, impl.comm)
    assert early_module.kwargs is impl.scatter_gather.scatter_kwargs
    assert early_module.Scatter is impl.functions.Scatter
    assert (early_module.none, early_module.fine) == (None, impl)
    impl.uninstall()
    assert list(vars(early_module).items()) == before


def test_functions_that_the_reference_only_imports_are_not_rebound(early_module):
    original = torch._utils._get_device_index
    early_module.index = OLD[f"{PACKAGE}.comm"]._get_device_index
    impl.install(rebind=True)
    assert importlib.import_module("torch.nn.parallel.comm")._get_device_index is not original
    assert early_module.index is torch._utils._get_device_index is original


def test_install_without_the_reference_changes_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.nn.parallel", None)
    before = list(sys.modules.items())
    with pytest.raises(ImportError):
        impl.install()
    assert list(sys.modules.items()) == before
    assert nn.DataParallel is REFERENCE


def test_install_changes_nothing_if_warnings_are_errors(early_module):
    before = state()
    warnings.simplefilter("error")
    with pytest.raises(UserWarning, match=early_module.__name__):
        impl.install()
    assert state() == before


def test_warning_lists_derived_classes():
    class Derived(REFERENCE):
        pass

    class Further(Derived):
        pass

    text = warning_text(impl.install)
    for derived in (Derived, Further):
        assert f"{derived.__module__}.{derived.__qualname__}" in text
        assert not issubclass(derived, nn.DataParallel)
    assert warning_text(impl.install, rebind=True)
    assert warning_text(impl.install, rebind=True) == ""


def raise_error(*args, **kwargs):
    raise AssertionError


def test_installation_calls_no_function_of_the_reference(topology, monkeypatch):
    for module in OLD.values():
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                monkeypatch.setattr(module, name, raise_error)
    devices = topology.take(2)
    with impl.installed():
        wrapped = nn.DataParallel(nn.Linear(2, 1).to(devices[0]), devices)
        wrapped(torch.ones(4, 2)).sum().backward()
    assert wrapped.module.weight.grad.tolist() == [[4.0, 4.0]]


def test_functional_call_rejects_the_wrapper_only_while_impl_is_installed(topology):
    devices = topology.take(2)
    net = nn.Linear(2, 1).to(devices[0])
    named = {f"module.{name}": torch.ones_like(value) for name, value in net.named_parameters()}
    x = torch.ones(4, 2, device=devices[0])
    wrapped = impl.DataParallel(net, devices)
    with pytest.raises(RuntimeError) as expected:
        torch.func.functional_call(REFERENCE(net, devices), named, x)
    for block in (impl.installed(), impl.installed(rebind=True)):
        with block, pytest.raises(RuntimeError) as caught:
            torch.func.functional_call(wrapped, named, x)
        assert str(caught.value) == str(expected.value)
    assert torch.func.functional_call(wrapped, named, x).tolist() == [[3.0]] * 4


def test_pickled_model_of_the_reference_is_loaded_as_impls_class(topology):
    devices = topology.take(2)
    old = REFERENCE(nn.Linear(2, 1).to(devices[0]), devices)
    stored = io.BytesIO()
    torch.save(old, stored)
    stored.seek(0)
    with impl.installed():
        new = torch.load(stored, weights_only=False)
    assert type(new) is impl.DataParallel
    x = torch.ones(4, 2, device=devices[0])
    torch.testing.assert_close(new(x), old.module(x))


#: A program that imports names of torch.nn.parallel before it installs impl.
EARLY_IMPORTS = """
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
    ("rebind", "state"), [(False, "not replaced without rebind=True"), (True, "rebound")]
)
def test_script_with_early_imports_uses_impl_only_after_rebinding(rebind, state):
    completed = run_program(EARLY_IMPORTS.format(rebind=rebind))
    assert completed.stdout == f"{rebind} {rebind} True\nTrue True\n"
    names = "__main__: DP, parallel_apply, scatter_gather"
    text = f"imported from torch.nn.parallel before the installation, {state}: {names}"
    assert completed.stderr.splitlines()[0].endswith(f"program.py:7: UserWarning: {text}")
