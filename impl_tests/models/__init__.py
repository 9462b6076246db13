"""Small models of many architectures with random weights, trained on one device and on two.

Only ``tox -e models`` installs the packages and runs these tests.
"""
