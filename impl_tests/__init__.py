"""What tests impl, and nobody else: its modules, and wrong versions of it.

* ``test_MODULE.py``: the tests of a private or public module, or of a topic that has several
  (``test_errors_lifetime``, ``test_workers_process``, ``test_buffer_sizes``, ``test_waiting``);
  ``samples.py`` has what several of them are tried with.
* ``test_house.py`` and ``test_ladder.py``: the rules about impl that no linter knows.
* ``mutants/``: wrong versions of impl written by hand, with the clauses that must notice them.
* ``mutation/``: small changes made by rule, and those that nobody can see, with the reason.
* ``stress/``: all parts of impl in many threads; ``free_threaded.py`` runs all of this on a Python
  without lock.
* ``orderings.py``: impl without one of its waits and stream switches; ``forks.py`` runs wrong
  versions in forked processes.
"""
