"""Warnings that point to the caller of impl."""

import inspect
import warnings

#: Modules whose frames are not the caller. ``nn.Module`` calls the forward of a wrapper.
_SKIPPED = (__name__.rpartition(".")[0] + ".", "torch.")


def warn_caller(text: str) -> None:
    """Warn, at the first frame outside of impl and torch. Python shows a warning once a line."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_SKIPPED):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)
