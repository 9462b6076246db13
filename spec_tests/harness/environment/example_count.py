"""The number of examples of slow tests, as a fraction of the Hypothesis profile's."""

from hypothesis import settings


def divide_examples(divisor: int) -> settings:
    """Return the profile's settings with its number of examples divided, at least two."""
    profile = settings()
    return settings(profile, max_examples=max(2, profile.max_examples // divisor))
