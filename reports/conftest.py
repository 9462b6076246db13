"""What is not collected with the tests of the reports."""

#: Needs a browser: `tox -e site` names it, and fails where there is none.
collect_ignore = ["in_browser"]
