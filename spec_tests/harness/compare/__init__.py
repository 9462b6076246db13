"""Comparison of calls: snapshots of values, outcomes, errors and replicas.

Of the other packages of the harness, its modules import only ``environment`` and ``concurrency``.
They also import ``cuda_stand_ins``.
"""
