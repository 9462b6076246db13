"""Kinds that change how the error of a module reaches the caller, for some classes of errors."""

import atexit
import os
import re
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def _errors(holds: Callable[[Any], object], name: str, change: Callable[[Any], object]) -> None:
    """Register a change of the errors for which a function holds."""

    def run(call: Call) -> Any:
        try:
            return call.run()
        except Exception as error:
            if holds(error):
                change(error)
            raise

    KINDS[name] = run


def _change_class(error: BaseException) -> NoReturn:
    raise ArithmeticError(str(error)) from error.__cause__


def _shorten(error: BaseException) -> None:
    error.args = (str(error).partition("\n")[0],)


def _without_source(error: BaseException) -> None:
    lines = str(error).split("\n")
    error.args = ("\n".join(line for line in lines if not line.startswith("    ")),)


def _qualify(error: BaseException) -> None:
    name = type(error).__qualname__
    error.args = (re.sub(r"Caught \w+", lambda _: f"Caught {name}", str(error)),)


def _has_no_text(error: BaseException) -> bool:
    try:
        str(error)
    except BaseException:  # any class that a module raises
        return True
    return False


def _replace(error: BaseException) -> NoReturn:
    raise ArithmeticError("perturbed") from error.__cause__


def _unwrap(error: BaseException) -> NoReturn:
    raise error.__cause__ or error


def _add_argument(error: BaseException) -> None:
    error.args = (*error.args, None)


def _is_called_with_the_text(error: BaseException) -> bool:
    return type(error).__module__ != "builtins" and not getattr(type(error), "message", None)


_errors(lambda error: isinstance(error, OSError), "os-errors-unchanged", _unwrap)
_errors(_is_called_with_the_text, "second-argument-added", _add_argument)
_errors(lambda error: isinstance(error, StopIteration), "stop-iterations-changed", _change_class)
_errors(lambda error: getattr(type(error), "message", None), "messages-changed", _change_class)
_errors(_has_no_text, "errors-without-text-changed", _replace)
_errors(
    lambda error: (
        type(error) is RuntimeError and type(error.__cause__) not in (RuntimeError, type(None))
    ),
    "runtime-errors-changed",
    _change_class,
)
_errors(
    lambda error: "\nDuring handling" in str(error) or "\nThe above exc" in str(error),
    "chains-shortened",
    _shorten,
)
_errors(lambda error: type(error).__module__ != "builtins", "names-qualified", _qualify)
_errors(lambda error: "Original Traceback" in str(error), "text-without-source", _without_source)


@KINDS.around
def missing_devices_unnamed(call: Call) -> Any:
    """Raise an error for an ordinal without a device that does not have the ordinal."""
    devices = call.arguments.get("devices") or ()
    count = torch.accelerator.device_count()
    if any(isinstance(device, int) and device >= count for device in devices):
        raise RuntimeError("perturbed")
    return call.run()


@KINDS.around
def os_errors_after_others(call: Call) -> Any:
    """Raise the last error that is no OSError in place of an OSError."""
    raised: dict[int, Exception] = {}

    def recording(index: int, module: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return module(*args, **kwargs)
            except Exception as error:
                raised[index] = error
                raise

        return run

    modules = [recording(*each) for each in enumerate(call.arguments["modules"])]
    try:
        return call.with_arguments(modules=modules).run()
    except OSError:
        for _, error in sorted(raised.items(), reverse=True):
            if not isinstance(error, OSError):
                raise error from None
        raise


@KINDS.around
def exit_status_changed(call: Call) -> Any:
    """Make the program end with status 3 if a module fails."""
    try:
        return call.run()
    except Exception:
        atexit.register(os._exit, 3)
        state.later(lambda: atexit.unregister(os._exit))
        raise


@KINDS.around
def errors_in_a_cycle(call: Call) -> Any:
    """Put the error into a reference cycle with itself."""
    try:
        return call.run()
    except Exception as error:
        vars(error)["perturbed"] = error
        raise
