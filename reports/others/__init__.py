"""Validate other implementations: ``python -m reports.others [NAME]``."""
