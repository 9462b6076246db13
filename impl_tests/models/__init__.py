"""Training of small models with random weights, on one device and on two devices.

Only ``tox -e consumers`` installs the packages and runs these tests.
"""
