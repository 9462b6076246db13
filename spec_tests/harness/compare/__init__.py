"""Calls observed and compared: snapshots of values, outcomes, errors, replicas.

May import ``traverse``, ``environment`` and ``concurrency``.
"""
