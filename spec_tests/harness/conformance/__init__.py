"""Clauses, registers of known divergences, verdicts, and the pages generated from them.

Of the other packages of the harness, its modules import only ``environment``. They also import
the module ``input_files``.
"""
