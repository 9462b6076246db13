"""The command ``parallel-conformance``, as ``python -m spec_tests.cli``."""

import sys

from spec_tests.cli.main import main

sys.exit(main())
