"""Reduces the number of Hypothesis examples of slow tests."""

from hypothesis import settings


def divide_examples(divisor: int) -> settings:
    """Return the settings with 1 / ``divisor`` of the profile's examples, but at least two."""
    profile = settings()
    return settings(profile, max_examples=max(2, profile.max_examples // divisor))
