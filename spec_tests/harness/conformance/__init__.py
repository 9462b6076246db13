"""Clauses and verdicts: the specification as data, registers, reports, generated pages.

May import ``environment``.
"""
