"""The options that the suite and the benchmarks share."""

import pytest


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


def add_suite_options(parser: pytest.Parser) -> None:
    """Add the options of the conformance suite."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--target",
        default="impl",
        metavar="NAME",
        help="importable package to validate, laid out like torch.nn.parallel (default: impl)",
    )
    group.addoption(
        "--divergences",
        default=None,
        metavar="FILE",
        help="TOML register of the target's known differences; strict: an unexpected pass fails "
        "(default: spec_tests/divergences/TARGET.toml if it exists)",
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
        help="let the inputs of every call that is compared with the reference arrive so many "
        "milliseconds late, while other streams than the default ones are current",
    )
    group.addoption(
        "--resume",
        action="store_true",
        help="leave out the tests that have a verdict in the file of --verdicts, and add to it",
    )
