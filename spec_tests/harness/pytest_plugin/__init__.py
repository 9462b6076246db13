"""The pytest plugins of the suite: options, hooks, fixtures, xdist workers, race check.

May import every other package of the harness. pytest loads ``options`` in every run, also in other
projects, so ``options`` imports no other package of the harness.
"""
