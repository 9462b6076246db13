"""Outputs, gradients and training are equal in the C++ front end, the reference and the target."""

from hypothesis import given

from spec_tests.cpp_front_end.systems import CppSystem, PythonSystem, training_runs
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause


@clause("systems.outputs")
@given(run=training_runs())
def test_target_outputs_equal_those_of_cpp(front_end, target, topology, run):
    expected = run.outputs(CppSystem(front_end), topology)
    checks.same(run.outputs(PythonSystem(target), topology), expected, run, tolerance=checks.LAYER)


@clause("systems.outputs")
@given(run=training_runs())
def test_reference_outputs_equal_those_of_cpp(front_end, reference, topology, run):
    expected = run.outputs(CppSystem(front_end), topology)
    checks.same(
        run.outputs(PythonSystem(reference), topology), expected, run, tolerance=checks.LAYER
    )


@clause("systems.gradients")
@given(run=training_runs())
def test_target_gradients_equal_those_of_cpp(front_end, target, topology, run):
    expected = run.gradients(CppSystem(front_end), topology)
    checks.same(
        run.gradients(PythonSystem(target), topology), expected, run, tolerance=checks.LAYER
    )


@clause("systems.gradients")
@given(run=training_runs())
def test_reference_gradients_equal_those_of_cpp(front_end, reference, topology, run):
    expected = run.gradients(CppSystem(front_end), topology)
    checks.same(
        run.gradients(PythonSystem(reference), topology), expected, run, tolerance=checks.LAYER
    )


@clause("systems.training")
@given(run=training_runs())
def test_target_trains_to_the_parameters_of_cpp(front_end, target, topology, run):
    expected = run.trained_parameters(CppSystem(front_end), topology)
    checks.same(
        run.trained_parameters(PythonSystem(target), topology),
        expected,
        run,
        tolerance=checks.LAYER,
    )


@clause("systems.training")
@given(run=training_runs())
def test_reference_trains_to_the_parameters_of_cpp(front_end, reference, topology, run):
    expected = run.trained_parameters(CppSystem(front_end), topology)
    checks.same(
        run.trained_parameters(PythonSystem(reference), topology),
        expected,
        run,
        tolerance=checks.LAYER,
    )
