"""Reduces the number of Hypothesis examples of slow tests."""

from hypothesis import Phase, settings


def divide_examples(divisor: int, *, shrink: bool = True) -> settings:
    """Return the settings with 1 / ``divisor`` of the profile's examples, but at least two.

    Args:
        divisor: The divisor of the number of examples.
        shrink: Whether Hypothesis looks for the smallest failing example.
    """
    profile = settings()
    phases = [each for each in profile.phases if shrink or each is not Phase.shrink]
    return settings(profile, max_examples=max(2, profile.max_examples // divisor), phases=phases)
