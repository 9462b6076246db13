"""Threads and streams: delayed inputs, side streams, threads in a chosen order, leaks.

May import ``traverse`` and ``environment``.
"""
