"""parallel_apply: exceptions of modules. The reference loses or obscures some: PA-3 to PA-6."""

import time
import traceback
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from torch import nn

from spec_tests import checks
from spec_tests.checks.leaks import silence_thread_errors
from spec_tests.checks.stream_log import current_device_and_streams
from spec_tests.checks.thread_order import ThreadOrder
from spec_tests.machine.clauses import cases, clause
from spec_tests.parallel_apply.run_modules import Lambda, run
from spec_tests.strategies.exceptions import (
    ANY_EXCEPTIONS,
    BASE_EXCEPTIONS,
    LINKS,
    PRINTS,
    ExceptionSpec,
    builtin_exceptions,
    generated_exceptions,
)
from spec_tests.strategies.parallel_apply import (
    OrderedModule,
    error_and_module,
    failing_call,
    failing_calls,
)
from spec_tests.strategies.small_modules import Calls, Double

#: Seconds that a `SlowEcho` sleeps before it records its end. A wrong target raises its error in
#: this time; a right one passes with any number.
SLEEP = 0.05
#: Values of `ExceptionSpec.message` for classes without a truthy class attribute `message`.
NO_MESSAGE = ("absent", "empty", "instance")
#: Values of `ExceptionSpec.message` for classes with a truthy class attribute `message`.
CLASS_MESSAGE = ("class", "property", "slot")
#: Values of `ExceptionSpec.constructor` for classes that refuse the text.
REFUSING = ("two", "keyword", "nothing", "picky")
#: Classes whose ``str`` does not return the text that the constructor got.
OTHER_TEXT_CLASSES = generated_exceptions(
    constructors=("inherited",), messages=NO_MESSAGE, prints=PRINTS[1:]
)
#: An exception that Python makes from a number and a text.
OS_ERROR = ExceptionSpec(OSError, notes=("a note",))
WITH_MESSAGE = failing_call({0: ExceptionSpec(ValueError, "inherited", "class")}, (0,))
#: Calls with an exception whose ``__str__`` raises an error or SystemExit.
STR_RAISES, STR_EXITS = (
    failing_call({0: ExceptionSpec(ValueError, "inherited", prints=prints)}, (0,))
    for prints in ("raises", "exits")
)


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
        self.echo = OrderedModule(number, turns, None)
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
@given(call=failing_calls(builtin_exceptions()))
def test_the_first_error_keeps_its_class_and_names_its_replica(target, baselines, topology, call):
    # PyTorch 1.0: the worker's exception was raised without the number of the replica (#18055).
    checks.agree(call, target, baselines, topology)


#: For each clause: calls whose modules raise.
RAISING = {
    "parallel_apply.errors.one-module": [failing_call({0: OS_ERROR}, (0,))],
    "parallel_apply.errors.lowest-index": [
        failing_call({0: OS_ERROR, 1: ExceptionSpec()}, (0, 1), (1, 0))
    ],
}


@cases("call", RAISING)
def test_the_error_of_the_first_module_that_fails_is_raised(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


def builtin(base, **facts):
    return {"base": base, "constructor": "builtin", "link": "", **facts}


#: For each clause: the facts about the exceptions of a call that are not drawn.
FACTS = {
    "parallel_apply.errors.class-name": [builtin(Outer.InnerError)],
    # PyTorch 1.0: a KeyError showed the repr of its text, on one line (#16647).
    "parallel_apply.errors.key-error": [builtin(KeyError)],
    "parallel_apply.errors.stop-iteration": [builtin(StopIteration)],
    "parallel_apply.errors.message-keyword": [
        {"constructor": "message", "message": message} for message in CLASS_MESSAGE
    ],
    "parallel_apply.errors.text-alone": [{"message": message} for message in NO_MESSAGE],
    # PyTorch 1.4: the constructor's TypeError replaced the module's error (#34130, #44631).
    # PyTorch 1.9: any other error of the constructor did (#58131).
    "parallel_apply.errors.refusing-constructor": [
        builtin(UnicodeDecodeError),
        *({"constructor": constructor} for constructor in REFUSING),
    ],
    "parallel_apply.errors.chained": [builtin(ValueError, link=link) for link in LINKS],
}


@cases("facts", FACTS)
@given(call=failing_calls(generated_exceptions(constructors=("inherited",), messages=("absent",))))
def test_an_error_is_rewrapped_according_to_its_class(target, baselines, topology, facts, call):
    modules = call.arguments["modules"]
    errors = {number: replace(error, **facts) for number, error in modules.errors.items()}
    call = replace(call, arguments={**call.arguments, "modules": replace(modules, errors=errors)})
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.errors.class-without-text")
@example(call=STR_RAISES)
@example(call=STR_EXITS)
@given(call=failing_calls(OTHER_TEXT_CLASSES))
def test_an_exception_class_that_does_not_print_its_text_is_kept(target, topology, call):
    found, module = error_and_module(call, target, topology)
    assert type(found) is type(module.raised)
    assert str(found.args[0]).startswith(f"Caught Generated in replica {module.number} on device ")


@clause("parallel_apply.errors.exiting-constructor")
@given(call=failing_calls(generated_exceptions(constructors=("exiting",), messages=("absent",))))
def test_a_system_exit_in_the_constructor_of_an_exception_is_propagated(target, topology, call):
    with pytest.raises(SystemExit):
        call.run(target, call.inputs(topology))


@clause("parallel_apply.errors.traceback")
@given(call=failing_calls(builtin_exceptions([ValueError])))
def test_the_error_text_contains_the_failing_line(target, topology, call):
    found, _ = error_and_module(call, target, topology)
    assert "raise self.raised" in str(found)


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
    failing = OrderedModule(0, turns, ExceptionSpec(ValueError))
    modules = [failing, *(SlowEcho(number, turns, finished) for number in range(1, 4))]
    with pytest.raises(ValueError):
        run(target, topology, modules)
    assert set(finished) == set(modules[1:])


@clause("parallel_apply.errors.context")
def test_an_error_raised_in_a_handler_has_the_handled_error_as_context(target, topology):
    with pytest.raises(ValueError) as caught:
        fail_while_handling(target, topology, LookupError("handled"))
    assert repr(caught.value.__context__) == "LookupError('handled')"


@clause("divergences.PA-3.base-exceptions-reach-the-caller")
@given(call=failing_calls(BASE_EXCEPTIONS))
def test_a_base_exception_is_raised_after_all_modules_have_ended(target, topology, call):
    with silence_thread_errors():
        found, module = error_and_module(call, target, topology)
    assert found is module.raised
    assert module.order.passed == len(call.arguments["inputs"])


# A register that records the wrong one of two errors must not hide an error that is lost.
@clause("divergences.PA-3.base-exceptions-reach-the-caller")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, BaseException])
def test_the_base_exception_of_one_module_is_raised(target, topology, kind):
    call = failing_call({1: ExceptionSpec(kind)}, (0, 1))
    with silence_thread_errors():
        found, module = error_and_module(call, target, topology)
    assert found is module.raised


@clause("divergences.PA-4.no-error-is-lost")
@example(call=failing_call({0: ExceptionSpec(ExceptionGroup)}, (0,)))
@example(call=WITH_MESSAGE)
@example(call=STR_RAISES)
@example(call=STR_EXITS)
@given(call=failing_calls(ANY_EXCEPTIONS))
def test_every_exception_contains_text_replica_and_device(target, topology, call):
    found, module = error_and_module(call, target, topology)
    printed = "".join(traceback.format_exception(found))
    original = traceback.format_exception_only(module.raised)[0].strip(" |+\n")
    checks.contains(printed, [f"in replica {module.number} on device {module.device}", original])


@clause("divergences.PA-4.no-error-is-lost")
@example(call=WITH_MESSAGE)
@given(
    call=failing_calls(
        generated_exceptions(constructors=("inherited",))
        | generated_exceptions(constructors=("message",), messages=CLASS_MESSAGE)
        | builtin_exceptions([ExceptionGroup])
    )
)
def test_an_exception_class_built_from_a_text_is_kept(target, topology, call):
    found, module = error_and_module(call, target, topology)
    assert type(found) is type(module.raised)


@clause("divergences.PA-4.no-error-is-lost")
@example(call=failing_call({0: ExceptionSpec(Exception, "two", "class")}, (0,)))
@given(call=failing_calls(generated_exceptions(constructors=REFUSING)))
def test_an_exception_class_not_built_from_a_text_becomes_runtime_error(target, topology, call):
    found, _ = error_and_module(call, target, topology)
    assert type(found) is RuntimeError


@clause("divergences.PA-5.key-error-subclasses-are-readable")
@example(call=failing_call({1: ExceptionSpec(KeyError, "inherited")}, (0, 1)))
@given(call=failing_calls(generated_exceptions(bases=[KeyError], constructors=("inherited",))))
def test_the_text_of_a_key_error_subclass_has_unescaped_newlines(target, topology, call):
    found, module = error_and_module(call, target, topology)
    assert isinstance(found, KeyError)
    assert str(found).startswith(f"Caught Generated in replica {module.number} on device ")
    assert "\nOriginal Traceback" in str(found)


@clause("divergences.PA-6.the-original-is-the-cause")
@example(call=failing_call({1: ExceptionSpec(OSError)}, (0, 1)))
@given(call=failing_calls(ANY_EXCEPTIONS))
def test_the_original_exception_is_the_cause(target, topology, call):
    found, module = error_and_module(call, target, topology)
    assert found.__cause__ is module.raised


@clause("parallel_apply.errors.no-memory")
@pytest.mark.parametrize("slot", range(3), ids="slot={}".format)
def test_the_error_names_the_device_without_memory(target, topology, slot):
    topology.require(distinct=3)
    inputs = [torch.ones(3, device=device) for device in topology.take(3)]
    ordinals, before = (
        [device.index for device in topology.take(3)],
        current_device_and_streams(topology),
    )
    run = target.parallel_apply.parallel_apply
    text = f"Caught OutOfMemoryError in replica {slot} on device {ordinals[slot]}"
    for _ in range(2):
        with topology.fail_allocations(slot), pytest.raises(torch.OutOfMemoryError, match=text):
            run([Double()] * 3, inputs, devices=ordinals)
        assert current_device_and_streams(topology) == before
        results = run([Double()] * 3, inputs, devices=ordinals)
        assert [result.tolist() for result in results] == [[2.0] * 3] * 3


# After the tests of the class of an error, which -x names if a target loses the class.
@clause("parallel_apply.current-device-by-default")
def test_an_error_of_a_module_without_inputs_names_the_current_device(target, topology):
    topology.require(distinct=2)
    ordinal = topology.device(1).index
    # PyTorch's own test of parallel_apply has this module.
    module = Calls(lambda *_: {}["wonderful"])
    with torch.accelerator.device_index(ordinal), pytest.raises(KeyError) as caught:
        target.parallel_apply.parallel_apply((module,) * 2, (None, None))
    assert f"Caught KeyError in replica 0 on device {ordinal}." in str(caught.value)
