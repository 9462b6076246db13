"""Versions of a distribution, as a requirement such as ``torch>=2.11,<2.16``."""

from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from spec_tests.harness import input_files

__all__ = ["is_satisfied", "parse"]


def parse(text: str) -> Requirement:
    """Return the requirement.

    Raises:
        ValueError: ``text`` is not the name of a distribution with a specifier.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    if requirement is None or not requirement.specifier:
        raise ValueError(f"versions {text!r} is not like 'torch>=2.11'")
    return requirement


def is_satisfied(text: str) -> bool:
    """Return whether the installed version of the distribution satisfies the requirement.

    A pre-release counts as its release, and a local version as its public version:
    ``2.16.0.dev20261120+cpu`` satisfies the same requirements as ``2.16.0``.

    Raises:
        input_files.RefusedError: The distribution is not installed.
    """
    requirement = parse(text)
    try:
        version = Version(metadata.version(requirement.name))
    except metadata.PackageNotFoundError:
        fault = f"{requirement.name} is not installed"
        raise input_files.refuse(f"versions {text!r}", fault) from None
    return requirement.specifier.contains(version.base_version)
