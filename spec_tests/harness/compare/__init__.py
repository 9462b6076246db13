"""Comparison of calls: snapshots of values, outcomes, errors and replicas.

May import ``traverse``, ``environment`` and ``concurrency``.
"""
