"""Small automatic changes to impl, one at a time, and the share of them that the tests detect.

``python -m impl_tests.weekly.mutation`` applies the operators of ``operators.py`` to impl's files.
For each change it runs the tests that execute the changed line, until one fails. The tests are the
conformance suite and the tests of impl's private modules. Each change is tried in a forked
process. The parent process has collected the conformance tests but has not imported impl.
"""
