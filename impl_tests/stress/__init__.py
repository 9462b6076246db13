"""All parts of impl at once, in many threads, for as long as one likes.

``python -m impl_tests.stress --minutes 10 --threads 2-16``. Rounds of random jobs, each of which
knows the right answer; between rounds, when no job runs, nothing may be left over. It says most on
a Python without lock, where two threads meet in the middle of every statement.

* ``jobs.py``: what the threads do, part by part; ``sharing.py``: what several of them share.
* ``rounds.py``: one round after the other, and what must hold between them.
* ``races.toml``: data races put into impl on purpose; ``--race NAME`` tries one.
"""
