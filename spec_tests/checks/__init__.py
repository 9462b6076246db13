"""What a test of a clause calls to judge a result: comparisons, refusals, laws, signatures.

``agree``, ``same``, ``contains`` and ``shares_memory`` are imported here; the other modules by
their names. Of the suite, they import only ``failure``, ``machine`` and ``simulator``.
"""

from spec_tests.checks.comparison import EXACT, LAYER, agree, contains, same, shares_memory

__all__ = ["EXACT", "LAYER", "agree", "contains", "same", "shares_memory"]
