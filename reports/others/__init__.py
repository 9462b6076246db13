"""Implementations that are not ours, judged by the suite: ``python -m reports.others [NAME]``."""
