"""The options of the suite; the entry point of the installed package for pytest.

pytest loads it into every run on a machine with the package. It imports nothing else, and does
nothing without ``--target``.
"""

import pytest

#: The rest of the suite, loaded for a target.
PLUGIN = "spec_tests.harness.pytest_plugin.hooks"
#: Seconds after which a test fails as hanging, unless the user sets a limit.
TIME_LIMIT = 300.0
DEFAULT_TARGET = "impl"
REFERENCE = "torch.nn.parallel"
NO_REFERENCE = "none"


def target_of(config: pytest.Config) -> str:
    """Return the name of the package under test."""
    name: str = config.getoption("--target") or DEFAULT_TARGET
    return name


def has_reference(config: pytest.Config) -> bool:
    """Whether the target is compared with torch.nn.parallel."""
    return bool(config.getoption("--reference") != NO_REFERENCE)


def mapping_of(config: pytest.Config) -> list[str]:
    """Return the values of ``--target-map``."""
    parts: list[str] = config.getoption("--target-map")
    return parts


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_device_options(parser)
    add_race_options(parser)
    add_target_options(parser)
    add_suite_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the rest of the suite if there is a target."""
    if config.getoption("--target") is None:
        return
    config.pluginmanager.import_plugin(PLUGIN)
    # pytest-timeout reads it in its own pytest_configure, which comes later.
    if not config.getini("timeout") and config.getoption("timeout") is None:
        config.option.timeout = TIME_LIMIT


def add_device_options(parser: pytest.Parser) -> None:
    """Add ``--accelerator`` and ``--device-ids``."""
    group = parser.getgroup("devices")
    group.addoption(
        "--accelerator",
        default="auto",
        metavar="TYPE",
        help="auto, sim, cuda or any device type of torch.accelerator; "
        "auto takes a real one if there is one, else the simulator (default: auto)",
    )
    group.addoption(
        "--device-ids",
        default=None,
        metavar="0,1,...",
        help="ordinals to use, in order; repeats let one device stand for several "
        "(default: all, once each)",
    )


def add_race_options(parser: pytest.Parser) -> None:
    """Add the options about races, late copies and faults of simulated devices."""
    group = parser.getgroup("devices")
    group.addoption(
        "--races",
        action="store_true",
        default=None,
        help="fail tests in which accesses to the devices' memory race, on sim only (default)",
    )
    group.addoption(
        "--no-races",
        action="store_false",
        dest="races",
        help="do not fail tests because of races",
    )
    group.addoption(
        "--late-copies",
        default=None,
        type=int,
        metavar="SEED",
        help="make copies that the host does not wait for as late as they may be made, on sim "
        "only: an early reader sees NaN; 0 for all copies, another seed for three in four",
    )
    group.addoption(
        "--fault",
        default=None,
        metavar="NAME",
        help="let the simulated devices misbehave as real ones have, all through the run: "
        "zero-is-current, device-left, dirty-memory, no-memory, garbled-peers, missing-primitives",
    )


def add_target_options(parser: pytest.Parser) -> None:
    """Add the options about target and reference."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--target",
        default=None,
        metavar="NAME",
        help="importable package to validate, laid out like torch.nn.parallel "
        f"(default: {DEFAULT_TARGET}, for the tests of the suite)",
    )
    group.addoption(
        "--target-map",
        action="append",
        default=[],
        metavar="NAME=PLACE",
        help="where the target has a part, data_parallel.DataParallel=package.module:Name, or a "
        "TOML file of such pairs; repeatable",
    )
    group.addoption(
        "--reference",
        default=None,
        choices=[REFERENCE, NO_REFERENCE],
        help="what the target is compared with beside the laws, oracles and pinned texts of the "
        "suite; with none torch.nn.parallel is not used, and tests that only compare with it are "
        f"not run (default: {REFERENCE})",
    )
    group.addoption(
        "--divergences",
        default=None,
        metavar="FILE",
        help="TOML register of the target's known differences; strict: an unexpected pass fails "
        "(default: spec_tests/divergences/TARGET.toml if it exists)",
    )


def add_suite_options(parser: pytest.Parser) -> None:
    """Add the options of a run of the conformance suite."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--clause",
        action="append",
        default=[],
        metavar="NAME",
        help="run the tests of this clause, or of the clauses below this name, only; repeatable",
    )
    group.addoption(
        "--verdicts",
        default=None,
        metavar="FILE",
        help="write the verdict of every test there as it ends, one JSON object a line",
    )
    group.addoption(
        "--late",
        default=0.0,
        type=float,
        metavar="MS",
        help="let the inputs of every call that is compared with a right answer arrive so many "
        "milliseconds late, while other streams than the default ones are current",
    )
    group.addoption(
        "--resume",
        action="store_true",
        help="leave out the tests that have a verdict in the file of --verdicts, and add to it",
    )
