"""The pytest plugins of the suite: options, hooks, fixtures, xdist workers, race check.

Of the other packages of the harness, its modules import only ``environment``, ``concurrency``,
``compare``, ``conformance`` and ``programs``. They also import the module ``input_files``, the
simulator and ``cuda_stand_ins``. ``options`` does not import torch, so that ``pytest --help``
needs no accelerator. ``shared_options`` does not import pytest either.
"""
