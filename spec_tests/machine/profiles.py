"""The Hypothesis profiles: how many examples a test draws, and how they are drawn."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine

# The seconds in which Hypothesis looks for a smaller failing call. Its comments allow to set this.
# On a busy machine less time would end with a larger call, which may differ in more facts than a
# register records.
engine.MAX_SHRINKING_SECONDS = 5
# Without the phase `explain`, which traces every line of further calls: inside torch.compile that
# takes minutes.
_PHASES = [phase for phase in Phase if phase is not Phase.explain]
# Report only one failure of a test. For several failures Hypothesis raises an exception group,
# whose class no record of a register expects.
_COMMON = settings(
    deadline=None,
    phases=_PHASES,
    report_multiple_bugs=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Each run draws the same examples, so its verdicts repeat, except with "fuzz" and "new".
settings.register_profile("quick", _COMMON, max_examples=25, derandomize=True)
settings.register_profile("report", _COMMON, max_examples=200, derandomize=True)
# The examples of the gate.
settings.register_profile("gate", _COMMON, max_examples=10, derandomize=True)
# Few examples for a first overview, and for devices on which tests are slow.
settings.register_profile("few", _COMMON, max_examples=5, derandomize=True)
settings.register_profile("fuzz", _COMMON, max_examples=5000)
# Other examples in each run, for `tox -e long -- suite`.
settings.register_profile("new", _COMMON, max_examples=25)
# A run on a target with a deliberate bug only has to fail: it needs no smallest failing call.
_WITHOUT_SHRINKING = (Phase.explicit, Phase.generate)
settings.register_profile(
    "perturbations", _COMMON, max_examples=10, derandomize=True, phases=_WITHOUT_SHRINKING
)
settings.load_profile("quick")


def divide_examples(divisor: int) -> settings:
    """Return the settings with 1 / ``divisor`` of the profile's examples, but at least two."""
    profile = settings()
    return settings(profile, max_examples=max(2, profile.max_examples // divisor))


def life_settings(divisor: int) -> settings:
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
