"""Packages that use DataParallel, trained on torch.nn.parallel and on impl in its place.

Not collected with the other tests of impl: ``tox -e consumers`` alone installs the packages.
"""
