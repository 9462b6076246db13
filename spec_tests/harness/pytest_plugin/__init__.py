"""The pytest plugins of the suite: options, hooks, fixtures, xdist workers, race check.

May import every other package. pytest loads ``options`` in every run, so ``options`` imports none.
"""
