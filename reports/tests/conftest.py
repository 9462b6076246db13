"""Leave the tests in a browser out of other runs."""

#: `tox -e site` runs them, and fails without a browser.
collect_ignore = ["in_browser"]
