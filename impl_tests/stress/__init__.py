"""Stress test: calls to all parts of impl in many threads at once.

``python -m impl_tests.stress --minutes 10 --threads 2-16`` runs rounds of random jobs, each with a
check of its result. Between rounds, when no job runs, nothing may be left over. The test is most
effective on free-threaded Python, where threads switch inside statements.

* ``jobs.py``: the jobs; ``sharing.py``: the modules that several threads share.
* ``rounds.py``: the rounds, and the checks between them.
* ``races.toml``: data races inserted into impl on purpose; ``--race NAME`` tries one.
"""
