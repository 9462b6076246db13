"""Threads and streams: inputs that arrive late, side streams, threads in a chosen order, leaks.

May import ``traverse`` and ``environment``.
"""
