"""Clauses, registers of known divergences, verdicts, and the pages generated from them.

May import ``environment``.
"""
