"""Stress test: calls to all parts of impl in many threads at once.

``python -m impl_tests.weekly.stress --minutes 10`` runs rounds of random calls to impl. Each
call checks its result. Between two rounds no call runs: then impl must not keep replicas, and
memory and threads must not grow. The test is most effective on free-threaded Python, where threads
switch inside statements.

* ``checked_calls.py``: the calls. Most of them are those of ``impl_tests/helpers/cases.py``.
* ``__main__.py``: the rounds, and the growth between them.
"""
