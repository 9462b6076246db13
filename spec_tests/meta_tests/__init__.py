"""Tests of harness, strategies, reference and simulator; not part of the wheel."""
