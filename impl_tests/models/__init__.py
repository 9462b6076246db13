"""Models of many architectures, tiny and with random weights, trained on one device and on two.

Not collected with the other tests of impl: ``tox -e models`` alone installs the packages.
"""
