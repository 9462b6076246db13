"""Outputs, gradients and training are equal in the C++ front end, the reference and the target."""

from hypothesis import given

from spec_tests.cpp_front_end.systems import CppSystem, PythonSystem, training_runs
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause


@clause("systems.outputs")
@given(run=training_runs())
def test_outputs_equal_those_of_cpp(front_end, target, baselines, topology, run):
    expected = run.outputs(CppSystem(front_end), topology)
    for each in (target, *baselines):
        found = run.outputs(PythonSystem(each), topology)
        checks.same(found, expected, run, tolerance=checks.LAYER)


@clause("systems.gradients")
@given(run=training_runs())
def test_gradients_equal_those_of_cpp(front_end, target, baselines, topology, run):
    expected = run.gradients(CppSystem(front_end), topology)
    for each in (target, *baselines):
        found = run.gradients(PythonSystem(each), topology)
        checks.same(found, expected, run, tolerance=checks.LAYER)


@clause("systems.training")
@given(run=training_runs())
def test_trained_parameters_equal_those_of_cpp(front_end, target, baselines, topology, run):
    expected = run.trained_parameters(CppSystem(front_end), topology)
    for each in (target, *baselines):
        found = run.trained_parameters(PythonSystem(each), topology)
        checks.same(found, expected, run, tolerance=checks.LAYER)
