"""Reduces the number of Hypothesis examples of slow tests."""

from hypothesis import settings


def divide_examples(divisor: int) -> settings:
    """Return the settings with 1 / ``divisor`` of the profile's examples, but at least two."""
    profile = settings()
    return settings(profile, max_examples=max(2, profile.max_examples // divisor))


def lives(divisor: int = 1) -> settings:
    """Return the settings of a state machine: 30 lives of 12 steps; with ``fuzz``, 1,000 of 50.

    Args:
        divisor: The number of lives is divided by it, if at least 4 remain.
    """
    profile = settings()
    count = min(profile.max_examples * 6 // 5, 1000)
    steps = 50 if count == 1000 else 12
    return settings(
        profile, max_examples=max(min(count, 4), count // divisor), stateful_step_count=steps
    )
