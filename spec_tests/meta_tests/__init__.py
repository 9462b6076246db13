"""Tests of the harness, the strategies, the CUDA stand-ins and the simulator; not in the wheel."""
