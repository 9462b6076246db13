"""Programs that repeat failed tests: the body of the test with the drawn values.

Of the other packages of the harness, the modules import only ``environment`` and ``conformance``.
"""
