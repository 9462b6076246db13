"""Features of the simulated accelerator that a run switches off."""

import pytest

from spec_tests import simulator

__all__ = ["switch_off"]


def switch_off(config: pytest.Config) -> None:
    """Switch off the features that ``--profile`` and ``--without`` name.

    Call it before the devices are made.

    Raises:
        pytest.UsageError: there is no such profile or feature, or the devices are real.
    """
    profile, names = config.getoption("--profile"), config.getoption("--without")
    if profile is None and not names:
        return
    if config.getoption("--accelerator") not in ("auto", "sim"):
        raise pytest.UsageError("--profile and --without: only sim can lack features on demand")
    try:
        simulator.switch_off([*simulator.PROFILES[profile or "full"], *names])
    except ValueError as error:
        raise pytest.UsageError(f"--without: {error}") from None
