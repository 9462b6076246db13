"""What must be equal whichever system runs the module: C++ front end, reference, target."""

from hypothesis import given

from spec_tests.cpp_front_end.systems import Cpp, Python, runs
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause


@clause("systems.outputs")
@given(run=runs())
def test_the_target_returns_what_cpp_returns(front_end, target, topology, run):
    expected = run.outputs(Cpp(front_end), topology)
    checks.same(run.outputs(Python(target), topology), expected, run, tolerance=checks.LAYER)


@clause("systems.outputs")
@given(run=runs())
def test_the_reference_returns_what_cpp_returns(front_end, reference, topology, run):
    expected = run.outputs(Cpp(front_end), topology)
    checks.same(run.outputs(Python(reference), topology), expected, run, tolerance=checks.LAYER)


@clause("systems.gradients")
@given(run=runs())
def test_the_target_finds_the_gradients_that_cpp_finds(front_end, target, topology, run):
    expected = run.gradients(Cpp(front_end), topology)
    checks.same(run.gradients(Python(target), topology), expected, run, tolerance=checks.LAYER)


@clause("systems.gradients")
@given(run=runs())
def test_the_reference_finds_the_gradients_that_cpp_finds(front_end, reference, topology, run):
    expected = run.gradients(Cpp(front_end), topology)
    checks.same(run.gradients(Python(reference), topology), expected, run, tolerance=checks.LAYER)


@clause("systems.training")
@given(run=runs())
def test_the_target_learns_what_cpp_learns(front_end, target, topology, run):
    expected = run.trained(Cpp(front_end), topology)
    checks.same(run.trained(Python(target), topology), expected, run, tolerance=checks.LAYER)


@clause("systems.training")
@given(run=runs())
def test_the_reference_learns_what_cpp_learns(front_end, reference, topology, run):
    expected = run.trained(Cpp(front_end), topology)
    checks.same(run.trained(Python(reference), topology), expected, run, tolerance=checks.LAYER)
