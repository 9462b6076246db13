"""Replicas, and copies of frozen parameters, that a ``DataParallel`` keeps for later forwards."""
