"""Exceptions in parallel_apply that the reference loses or obscures: PA-3 to PA-6."""

import traceback

import pytest
from hypothesis import example, given

from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.leaks import silence_thread_errors
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.exceptions import (
    ANY_EXCEPTIONS,
    BASE_EXCEPTIONS,
    ExceptionSpec,
    builtin_exceptions,
    generated_exceptions,
)
from spec_tests.strategies.failing_modules import FailingCall, error_and_modules, failing_calls

EXCEPTION_GROUP = FailingCall({0: ExceptionSpec(ExceptionGroup)}, (0,), (0,))
WITH_MESSAGE = FailingCall({0: ExceptionSpec(ValueError, "inherited", "class")}, (0,), (0,))
STR_RAISES = FailingCall({0: ExceptionSpec(Exception, "inherited", prints="raises")}, (0,), (0,))
STR_EXITS = FailingCall({0: ExceptionSpec(Exception, "inherited", prints="exits")}, (0,), (0,))
KEY_ERROR_SUBCLASS = FailingCall({1: ExceptionSpec(KeyError, "inherited")}, (0, 1), (0, 1))
OS_ERROR = FailingCall({1: ExceptionSpec(OSError)}, (0, 1), (0, 1))


@clause("divergences.PA-3.base-exceptions-reach-the-caller")
@given(call=failing_calls(BASE_EXCEPTIONS))
def test_a_base_exception_is_raised_after_all_modules_have_ended(target, topology, call):
    with silence_thread_errors():
        found, modules = error_and_modules(call, target, topology)
    assert found is modules[min(call.errors)].raised
    assert modules[0].order.passed == len(modules)


# A register that records the wrong one of two errors must not hide an error that is lost.
@clause("divergences.PA-3.base-exceptions-reach-the-caller")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, BaseException])
def test_the_base_exception_of_one_module_is_raised(target, topology, kind):
    call = FailingCall({1: ExceptionSpec(kind)}, (0, 1), (0, 1))
    with silence_thread_errors():
        found, modules = error_and_modules(call, target, topology)
    assert found is modules[1].raised


@clause("divergences.PA-4.no-error-is-lost")
@example(call=EXCEPTION_GROUP)
@example(call=WITH_MESSAGE)
@example(call=STR_RAISES)
@example(call=STR_EXITS)
@given(call=failing_calls(ANY_EXCEPTIONS))
def test_every_exception_contains_text_replica_and_device(target, topology, call):
    found, modules = error_and_modules(call, target, topology)
    printed = "".join(traceback.format_exception(found))
    first = min(call.errors)
    device = topology.device(call.slots[first]).index
    original = traceback.format_exception_only(modules[first].raised)[0].strip(" |+\n")
    checks.contains(printed, [f"in replica {first} on device {device}", original])


@clause("divergences.PA-4.no-error-is-lost")
@example(call=WITH_MESSAGE)
@given(
    call=failing_calls(
        generated_exceptions(constructors=("inherited",))
        | generated_exceptions(constructors=("message",), messages=("class", "property", "slot"))
        | builtin_exceptions([ExceptionGroup])
    )
)
def test_an_exception_class_built_from_a_text_is_kept(target, topology, call):
    found, modules = error_and_modules(call, target, topology)
    assert type(found) is type(modules[min(call.errors)].raised)


@clause("divergences.PA-4.no-error-is-lost")
@example(call=FailingCall({0: ExceptionSpec(Exception, "two", "class")}, (0,), (0,)))
@given(
    call=failing_calls(generated_exceptions(constructors=("two", "keyword", "nothing", "picky")))
)
def test_an_exception_class_not_built_from_a_text_becomes_runtime_error(target, topology, call):
    found, _ = error_and_modules(call, target, topology)
    assert type(found) is RuntimeError


@clause("divergences.PA-5.key-error-subclasses-are-readable")
@example(call=KEY_ERROR_SUBCLASS)
@given(call=failing_calls(generated_exceptions(bases=[KeyError], constructors=("inherited",))))
def test_the_text_of_a_key_error_subclass_has_unescaped_newlines(target, topology, call):
    found, _ = error_and_modules(call, target, topology)
    first = min(call.errors)
    assert isinstance(found, KeyError)
    assert str(found).startswith(f"Caught Generated in replica {first} on device ")
    assert "\nOriginal Traceback" in str(found)


@clause("divergences.PA-6.the-original-is-the-cause")
@example(call=OS_ERROR)
@given(call=failing_calls(ANY_EXCEPTIONS))
def test_the_original_exception_is_the_cause(target, topology, call):
    found, modules = error_and_modules(call, target, topology)
    assert found.__cause__ is modules[min(call.errors)].raised
