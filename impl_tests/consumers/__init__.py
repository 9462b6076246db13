"""Training runs of packages that use DataParallel, on torch.nn.parallel and on impl.

Only ``tox -e consumers`` installs the packages and runs these tests.
"""
