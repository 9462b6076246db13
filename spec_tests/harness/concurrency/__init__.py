"""Threads and streams: side streams, threads in a chosen order, leaks.

Of the other packages of the harness, its modules import only ``environment``. They also import
the simulator.
"""
