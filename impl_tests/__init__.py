"""Tests of impl alone: of its modules, and of deliberately wrong versions of it.

* ``test_MODULE.py``: the tests of a public module or of a topic; ``_PACKAGE/`` and
  ``distributed/``: those of a package. ``samples.py`` has helpers for several of them.
* ``test_source_rules.py`` and ``test_import_order.py``: rules for impl's source that no linter
  checks.
* ``mutants/``: hand-written wrong versions of impl, with the clauses whose tests must fail.
* ``mutation/``: small automatic changes of impl, and those without an effect, with the reason.
* ``stress/``: all parts of impl in many threads. ``free_threaded.py`` runs all tests on a
  free-threaded Python.
* ``orderings.py``: impl without one of its waits or stream switches.
* ``consumers/`` and ``models/``: training with packages that use DataParallel, and of models.
* ``forks.py``: execution of jobs in forked processes.
"""
