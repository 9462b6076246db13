"""Small automatic changes to impl, one at a time: how many do the tests notice?

``python -m impl_tests.mutation`` applies cosmic-ray's operators to every file of impl,
and some of its own that drop a step or fix a condition (``drops``), and runs the tests that
execute the changed line, the likeliest to fail first, until one does: the conformance suite and
the tests of impl's private modules. Each change is tried in a process forked from one that has
collected all tests but has not imported impl.
"""
