"""A target for the suite: ``impl`` with the wrapped functions that the environment names.

Submodules of this module are those of ``impl``. A child process that imports them has the same
perturbation.
"""

import importlib
import os
import sys

from impl_tests.wrong import state, wrapping
from impl_tests.wrong.wrapping import TARGET
from spec_tests.harness.environment.target import PARTS

_selected = os.environ.get(state.FUNCTIONS, "")
wrapping.wrap(TARGET, None if _selected == "*" else frozenset(_selected.split(",")))
_package = importlib.import_module(TARGET)
for _name in [name for names in PARTS.values() for name in names]:
    try:
        sys.modules[f"{__name__}.{_name}"] = importlib.import_module(f"{TARGET}.{_name}")
    except ModuleNotFoundError as error:
        if error.name != f"{TARGET}.{_name}":
            raise
sys.modules[__name__] = _package
