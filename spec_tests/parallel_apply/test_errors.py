"""parallel_apply: exceptions of replicas."""

import time

import pytest
from hypothesis import example, given
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.thread_order import ThreadOrder
from spec_tests.harness.conformance.clauses import clause
from spec_tests.parallel_apply.run_modules import Lambda, run
from spec_tests.strategies.exceptions import (
    PRINTS,
    ExceptionSpec,
    builtin_exceptions,
    generated_exceptions,
)
from spec_tests.strategies.failing_modules import (
    FailingCall,
    FailingModule,
    chaining_calls,
    error_and_modules,
    failing_calls,
)
from spec_tests.strategies.parallel_apply import Passthrough, ordinals

#: Seconds that a `SlowEcho` sleeps before it records its end.
SLEEP = 0.05
#: Values of `ExceptionSpec.message` for classes without a truthy class attribute `message`.
NO_MESSAGE = ("absent", "empty", "instance")
#: Values of `ExceptionSpec.message` for classes with a truthy class attribute `message`.
CLASS_MESSAGE = ("class", "property", "slot")
#: Classes whose ``str`` does not return the text that the constructor got.
OTHER_TEXT_CLASSES = generated_exceptions(
    constructors=("inherited",), messages=NO_MESSAGE, prints=PRINTS[1:]
)
#: An exception that Python makes from a number and a text.
OS_ERROR = ExceptionSpec(OSError, notes=("a note",))
#: A call with an exception whose ``__str__`` raises an error.
STR_RAISES = FailingCall({0: ExceptionSpec(ValueError, "inherited", prints="raises")}, (0,), (0,))
#: A call with an exception whose ``__str__`` raises SystemExit.
STR_EXITS = FailingCall({0: ExceptionSpec(ValueError, "inherited", prints="exits")}, (0,), (0,))


class Outer:
    """A namespace. The qualified name of ``InnerError`` differs from its plain name."""

    class InnerError(Exception):
        pass


def fail(error):
    raise error


class SlowEcho(nn.Module):
    """A module that waits for its turn, sleeps, and records that it has finished."""

    def __init__(self, number, turns, finished):
        super().__init__()
        self.echo = Passthrough(number, turns)
        self.finished = finished

    def forward(self):
        self.echo()
        time.sleep(SLEEP)
        self.finished.append(self)


def fail_while_handling(target, topology, handled):
    try:
        raise handled
    except LookupError:
        run(target, topology, [Lambda(fail, ValueError("failure"))] * 2)


@clause("parallel_apply.errors.rewrapped")
@example(call=FailingCall({0: OS_ERROR}, (0, 1), (0, 1)))
@given(call=failing_calls(builtin_exceptions()))
def test_an_error_keeps_its_class_and_names_its_replica(target, baselines, topology, call):
    # PyTorch 1.0: the worker's exception was raised without the number of the replica (#18055).
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.lowest-index")
@given(call=failing_calls(builtin_exceptions(), min_failing=2))
def test_the_error_of_the_first_failing_module_is_raised(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.one-module")
@example(call=FailingCall({0: OS_ERROR}, (0,), (0,)))
@given(call=failing_calls(builtin_exceptions(), max_modules=1))
def test_error_of_a_single_module_is_raised_like_errors_of_several(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.class-name")
@given(call=failing_calls(builtin_exceptions([Outer.InnerError])))
def test_the_error_text_contains_the_plain_name_of_the_class(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.key-error")
@given(call=failing_calls(builtin_exceptions([KeyError])))
def test_the_text_of_a_rewrapped_key_error_has_unescaped_newlines(
    target, baselines, topology, call
):
    # PyTorch 1.0: a KeyError showed the repr of its text, on one line (#16647).
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.stop-iteration")
@given(call=failing_calls(builtin_exceptions([StopIteration])))
def test_a_stop_iteration_stays_a_stop_iteration(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.message-keyword")
@given(call=failing_calls(generated_exceptions(constructors=("message",), messages=CLASS_MESSAGE)))
def test_an_exception_class_with_a_message_attribute_is_called_with_the_keyword(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.text-alone")
@given(call=failing_calls(generated_exceptions(constructors=("inherited",), messages=NO_MESSAGE)))
def test_an_exception_class_is_called_with_the_text_alone(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.class-without-text")
@example(call=STR_RAISES)
@example(call=STR_EXITS)
@given(call=failing_calls(OTHER_TEXT_CLASSES))
def test_an_exception_class_that_does_not_print_its_text_is_kept(target, topology, call):
    found, modules = error_and_modules(call, target, topology)
    first = min(call.errors)
    assert type(found) is type(modules[first].raised)
    assert str(found.args[0]).startswith(f"Caught Generated in replica {first} on device ")


@clause("parallel_apply.errors.refusing-constructor")
@given(
    call=failing_calls(
        builtin_exceptions([UnicodeDecodeError])
        | generated_exceptions(
            constructors=("two", "keyword", "nothing", "picky"), messages=NO_MESSAGE
        )
    )
)
def test_an_exception_class_that_refuses_the_text_becomes_a_runtime_error(
    target, baselines, topology, call
):
    # PyTorch 1.4: the constructor's TypeError replaced the module's error (#34130, #44631).
    # PyTorch 1.9: any other error of the constructor did (#58131).
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.exiting-constructor")
@given(call=failing_calls(generated_exceptions(constructors=("exiting",), messages=("absent",))))
def test_a_system_exit_in_the_constructor_of_an_exception_is_propagated(target, topology, call):
    with pytest.raises(SystemExit):
        call.apply(target, ordinals(topology, call.slots))


@clause("parallel_apply.errors.chained")
@given(call=chaining_calls())
def test_the_error_text_contains_causes_and_contexts(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.traceback")
@given(call=failing_calls(builtin_exceptions([ValueError])))
def test_the_error_text_contains_the_failing_line(target, topology, call):
    with pytest.raises(ValueError) as caught:
        call.apply(target, ordinals(topology, call.slots))
    assert "raise self.raised" in str(caught.value)


class CustomBaseException(BaseException):
    """A BaseException that is neither an Exception nor a built-in class."""


@clause("parallel_apply.errors.base-exception-of-one-module")
@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, GeneratorExit, CustomBaseException]
)
def test_a_base_exception_of_a_single_module_is_raised_unchanged(target, topology, kind):
    original = kind("failure")
    with pytest.raises(kind) as caught:
        run(target, topology, [Lambda(fail, original)])
    assert caught.value is original


@clause("parallel_apply.errors.after-all-have-ended")
def test_an_error_is_raised_after_all_modules_have_ended(target, topology):
    turns, finished = ThreadOrder(range(4)), []
    failing = FailingModule(0, turns, ExceptionSpec(ValueError))
    modules = [failing, *(SlowEcho(number, turns, finished) for number in range(1, 4))]
    with pytest.raises(ValueError):
        run(target, topology, modules)
    assert set(finished) == set(modules[1:])


@clause("parallel_apply.errors.context")
def test_an_error_raised_in_a_handler_has_the_handled_error_as_context(target, topology):
    with pytest.raises(ValueError) as caught:
        fail_while_handling(target, topology, LookupError("handled"))
    assert repr(caught.value.__context__) == "LookupError('handled')"
