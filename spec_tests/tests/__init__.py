"""Tests of the suite's own code, such as harness and simulator. The wheel does not have them."""
