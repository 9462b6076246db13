"""The pytest plugins of the suite: options, hooks, fixtures, xdist workers, race check.

Of the other packages of the harness, its modules import only ``environment``, ``concurrency`` and
``conformance``. They also import the module ``input_files``, the simulator and ``cuda_stand_ins``.
pytest loads ``options`` in every run, also in other projects, so ``options`` imports no module of
the suite.
"""
