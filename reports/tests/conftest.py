"""Exclude the tests in a browser from all runs but `tox -e site`."""

#: Paths that pytest does not collect. `tox -e site` ignores this file (--confcutdir).
collect_ignore = ["in_browser"]
