"""impl._torch_private: results of the functions that use private names of PyTorch."""

from functools import partial

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as registration

from impl import _torch_private


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
    assert not _torch_private.has_hooks(leaf)
    getattr(leaf, register)(lambda _: None)
    assert _torch_private.has_hooks(leaf)


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
