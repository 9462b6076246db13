"""impl._torch_private: the only module with private names of PyTorch, and its functions."""

import ast
import pkgutil
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as registration

from impl import _torch_private
from spec_tests.tests.python_source import dotted_names

IMPL = Path(_torch_private.__file__).parent
TREES = {
    path.relative_to(IMPL).as_posix(): ast.parse(path.read_text("utf-8"))
    for path in IMPL.rglob("*.py")
}
PRIVATE_MODULES = ("_torch_private.py",)
OTHERS = sorted(TREES.keys() - set(PRIVATE_MODULES))
#: The private names of PyTorch that the module looks up when a function is called.
PRIVATE_NAMES = sorted(
    {
        name
        for name in dotted_names(IMPL / PRIVATE_MODULES[0])
        if re.fullmatch(r"torch[\w.]+", name)
    }
)
#: Names with a leading underscore that any module of impl may use.
ALLOWED = {
    *("_modules", "_parameters", "_buffers", "_former_parameters", "_is_replica"),
    *("_compiled_call_impl", "_call_impl", "_replicate_for_data_parallel"),
    *("_is_full_backward_hook", "_non_persistent_buffers_set"),
    "_keys",  # The keys of a ParameterDict.
    "_has_compiled_code",  # impl itself sets this attribute of a module.
    *("_fields", "_make", "_asdict", "_replace"),  # Attributes of named tuples.
}
PRIVATE = re.compile(r"([A-Za-z]\w*\.)*_[a-z]\w*(\.\w+)*|torch(\.\w+)*\._\w+(\.\w+)*")


def defined_names(tree):
    """Yield the names that a module defines, and the attributes that its classes set."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(asname=str(name))
            ):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


#: All names that impl defines.
IMPL_NAMES = {name for tree in TREES.values() for name in defined_names(tree)}


def used_names(tree):
    """Yield the names with a leading underscore in the syntax tree of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name):
                names = [name]
            case ast.Import(names=aliases):
                names = [part for alias in aliases for part in alias.name.split(".")]
            case ast.ImportFrom(level=0, module=module, names=aliases):
                names = [*module.split("."), *(alias.name for alias in aliases)]
            case ast.Constant(value=str(text)) if PRIVATE.fullmatch(text):
                names = [] if text.startswith("torch.nn.parallel.") else text.split(".")
            case _:
                continue
        yield from (n for n in names if n.startswith("_") and not n.startswith("__"))


@pytest.mark.parametrize("module", OTHERS)
def test_no_other_module_uses_private_names_of_pytorch(module):
    assert set(used_names(TREES[module])) <= IMPL_NAMES | ALLOWED


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_private_name_exists_in_torch(name):
    pkgutil.resolve_name(name)


def test_saved_tensor_hooks_are_detected_during_tracing():
    with saved_tensors_hooks(lambda x: x, lambda x: x):
        torch._C._autograd._saved_tensors_hooks_set_tracing(True)
        try:
            assert _torch_private.has_changed_operators()
        finally:
            torch._C._autograd._saved_tensors_hooks_set_tracing(False)


def test_functorch_transforms_are_detected():
    seen = []
    torch.func.vmap(lambda x: seen.append(_torch_private.has_changed_operators()) or x)(
        torch.ones(2)
    )
    assert [*seen, _torch_private.has_changed_operators()] == [True, False]


@pytest.mark.parametrize("kind", ["module", "parameter", "buffer"])
def test_registration_hooks_are_detected(kind):
    register = getattr(registration, f"register_module_{kind}_registration_hook")
    handle = register(lambda *_: None)
    assert _torch_private.has_registration_hooks()
    handle.remove()
    assert not _torch_private.has_registration_hooks()


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_a_leaf_are_detected(register):
    leaf = torch.ones(1, requires_grad=True)
    assert _torch_private.have_hooks_or_history([leaf]) == [False]
    getattr(leaf, register)(lambda _: None)
    assert _torch_private.have_hooks_or_history([leaf]) == [True]


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_pre_hook",
        "register_forward_hook",
        "register_full_backward_pre_hook",
        "register_full_backward_hook",
    ],
)
def test_hooks_of_a_module_are_detected(register):
    module = torch.nn.Identity()
    assert not _torch_private.module_has_hooks(module)
    getattr(module, register)(lambda *_: None)
    assert _torch_private.module_has_hooks(module)


class InterruptedGuard:
    """A guard of inference mode. An interrupt arrives when it has been entered, or left."""

    def __init__(self, mode, guard_class, method):
        self._guard, self._method = guard_class(mode), method

    def __enter__(self):
        self._guard.__enter__()
        if self._method == "__enter__":
            raise KeyboardInterrupt

    def __exit__(self, *error):
        self._guard.__exit__(*error)
        if self._method == "__exit__":
            raise KeyboardInterrupt


def modes():
    return torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("enabled", [False, True], ids="enabled={}".format)
def test_a_call_with_inference_mode_has_grad_mode_off(context, enabled):
    with context():
        before = modes()
        assert _torch_private.call_with_inference_mode(enabled, modes) == (enabled, False)
        assert modes() == before


@pytest.mark.parametrize("method", ["__enter__", "__exit__"])
def test_an_interrupted_call_outside_of_inference_mode_restores_both_modes(method, monkeypatch):
    with torch.inference_mode():
        guard_class = torch._C._InferenceMode
        guard = partial(InterruptedGuard, guard_class=guard_class, method=method)
        monkeypatch.setattr(torch._C, "_InferenceMode", guard)
        with pytest.raises(KeyboardInterrupt) as caught:
            _torch_private.call_with_inference_mode(False, int)
        monkeypatch.undo()
        assert modes() == (True, False)
        del caught  # Frees the guard.
        assert modes() == (True, False)


def test_an_interrupted_call_restores_the_tracking_of_views(monkeypatch):
    set_value = torch._C._set_view_replay_enabled

    def interrupt(value):
        set_value(value)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(torch._C, "_set_view_replay_enabled", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _torch_private.track_original_views(int)
    assert not torch._C._is_view_replay_enabled()
