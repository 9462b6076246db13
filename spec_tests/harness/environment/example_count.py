"""How many calls a slow test draws: a part of what the Hypothesis profile asks for."""

from hypothesis import settings


def divided_by(divisor: int) -> settings:
    """The settings of the profile with one ``divisor``-th of its examples, two at least."""
    profile = settings()
    return settings(profile, max_examples=max(2, profile.max_examples // divisor))
