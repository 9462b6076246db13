"""Validate other implementations of torch.nn.parallel: ``python -m reports.others [NAME]``."""
