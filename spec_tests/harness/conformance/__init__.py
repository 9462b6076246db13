"""The specification as data, registers of divergences, verdicts, and generated pages.

May import ``environment``.
"""
