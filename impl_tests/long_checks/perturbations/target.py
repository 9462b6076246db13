"""A target for the suite: ``impl`` with the perturbation that the environment names.

Submodules of this module are those of ``impl``. A child process that imports them has the same
perturbation.
"""

import importlib
import sys

from impl_tests.long_checks.perturbations import replacement
from spec_tests.machine.target import PARTS

replacement.replace_function()
_package = importlib.import_module(replacement.TARGET)
for _name in [name for names in PARTS.values() for name in names]:
    sys.modules[f"{__name__}.{_name}"] = importlib.import_module(f"{replacement.TARGET}.{_name}")
sys.modules[__name__] = _package
