"""Training runs of packages that use DataParallel, once with torch.nn.parallel and once with impl.

Only ``tox -e consumers`` installs the packages and runs these tests.
"""
