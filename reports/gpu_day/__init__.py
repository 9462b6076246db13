"""Run every check that needs a GPU: ``python -m reports.gpu_day --out FOLDER``."""
