"""Lose ranks of impl.distributed: ``python -m impl_tests.faults.ranks``."""

import sys

from .trials import main

sys.exit(main())
