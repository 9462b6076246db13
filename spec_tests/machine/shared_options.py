"""The options that ``parallel-conformance run`` and pytest have in common.

This module imports only the standard library: the command also runs without pytest.
"""

from typing import Any

NO_REFERENCE = "none"
#: For each option: the arguments of ``ArgumentParser.add_argument``.
SHARED: dict[str, dict[str, Any]] = {
    "--accelerator": {
        "default": "auto",
        "metavar": "TYPE",
        "help": "device type: auto, sim, cuda or any type of torch.accelerator; "
        "auto: a real accelerator if there is one, else the simulator (default: auto)",
    },
    "--device-ids": {
        "metavar": "0,1,...",
        "help": "ordinals of the devices, in order; a repeated device stands for several "
        "(default: all devices)",
    },
    "--clause": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "run only the tests of this clause, or of all clauses whose ids begin with NAME, "
        "such as comm.sc; repeatable",
    },
    "--target-map": {
        "action": "append",
        "default": [],
        "metavar": "NAME=PLACE",
        "help": "place of a submodule or name that the target has elsewhere than "
        "torch.nn.parallel: data_parallel.DataParallel=package.module:Name; or a TOML file with "
        "such pairs; repeatable",
    },
    "--reference": {
        "choices": ["torch.nn.parallel", NO_REFERENCE],
        "help": "implementation to compare with, in addition to the suite's laws, oracle and "
        "pinned texts; none: do not use torch.nn.parallel, and do not run tests that only compare "
        "with it (default: torch.nn.parallel)",
    },
    "--divergences": {
        "metavar": "FILE",
        "help": "TOML register of the target's known divergences; a recorded test that passes is "
        "an error (default: spec_tests/registers/TARGET.toml if it exists)",
    },
    "--verdicts": {
        "metavar": "FILE",
        "help": "write the verdict of each test to this file when the test ends, one JSON object "
        "a line",
    },
    "--resume": {
        "action": "store_true",
        "help": "continue an interrupted run: skip tests that have a verdict in the file of "
        "--verdicts, and append to the file",
    },
}
