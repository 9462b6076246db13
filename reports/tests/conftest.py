"""Exclude the tests in a browser from other runs."""

#: Only `tox -e site` runs these tests; it fails without a browser.
collect_ignore = ["in_browser"]
