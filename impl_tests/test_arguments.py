"""impl._arguments: errors that name the argument."""

import importlib
import inspect
import re

import numpy as np
import pytest
import torch

import impl
from impl._arguments import argument, as_int, as_tensors
from impl_tests.helpers.cases import CASES

#: Errors that do not name the argument: the arguments, the exact class and the whole text. They
#: name the value.
UNNAMED_ERRORS = [
    (
        "output_device|target_device|destination",
        TypeError,
        "a device must be an int, a str, a torch.device or None, not object",
    ),
    # The function has these arguments as ``*grads`` and ``*inputs``.
    ("first|second", TypeError, r"grads\[[01]\] must be a tensor, not object"),
    ("input|first|second", TypeError, r"inputs\[[01]\] must be a tensor, not object"),
    ("x", ValueError, "no argument of 'forward' contains a tensor to split, .*"),
    # The arguments of a replica, which its error names by the signature of its module.
    ("target", AttributeError, "'object' object has no attribute 'size'"),
    ("inputs", TypeError, r"Net\.forward\(\) got multiple values for argument 'x'"),
    ("module_kwargs", TypeError, r".* argument after \*\* must be a mapping, not object"),
    ("x", TypeError, r"linear\(\): argument 'input' .*"),
]
#: Functions that accept any object, and methods that pass their arguments to a function.
_WITHOUT_CHECKS = {
    "get_a_var",
    "is_namedtuple",
    "DataParallel.gather",
    "DataParallel.parallel_apply",
    "DataParallel.replicate",
    "DataParallel.scatter",
    "DataParallelWithLoss.gather",
}
#: For each beginning of the names of cases: the modules of the functions.
_MODULES = {
    "": ("scatter_gather", "replicate", "parallel_apply", "data_parallel"),
    "comm.": ("comm",),
    "functions.": ("functions",),
}


def public_functions():
    """Return the functions and methods of impl's public modules, with their names."""
    members = {}
    for prefix, names in _MODULES.items():
        for module in [importlib.import_module(f"impl.{name}") for name in names]:
            members |= {f"{prefix}{name}": getattr(module, name) for name in module.__all__}
    members |= {each.__name__: each for each in (impl.DataParallelWithLoss, impl.SyncBatchNorm)}
    found = {}
    for name, member in members.items():
        bases = [base for base in getattr(member, "__mro__", ()) if "impl" in base.__module__]
        found.setdefault(member.__init__ if bases else member, name)
        for method in [method for base in bases for method in vars(base)]:
            if inspect.isroutine(getattr(member, method)):
                found.setdefault(getattr(member, method), f"{name}.{method}")
    return found


def public_arguments():
    for function, full in public_functions().items():
        name = full.removesuffix(".forward") if full.startswith("functions.") else full
        if name in _WITHOUT_CHECKS or "._" in full or name.endswith(".backward"):
            continue
        for each in inspect.signature(function).parameters.values():
            is_variable = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
            if each.name not in ("self", "ctx") and not is_variable:
                yield name, each.name


def test_an_error_gets_a_note_and_keeps_its_text():
    error = KeyError("text")
    with pytest.raises(KeyError) as caught, argument("x or y"):
        raise error
    assert caught.value is error
    assert error.args == ("text",)
    assert error.__notes__ == ["Argument: x or y"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), torch.OutOfMemoryError("text")])
def test_an_interrupt_and_an_out_of_memory_error_get_no_note(error):
    with pytest.raises(type(error)) as caught, argument("x"):
        raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")


def test_the_note_has_the_names_of_the_outermost_block():
    error = ValueError("text")
    error.add_note("Argument: of the caller")
    for _ in range(2):  # The error may be raised again.
        with pytest.raises(ValueError, match="text"), argument("outer"), argument("inner"):
            raise error
    assert error.__notes__ == ["Argument: of the caller", "Argument: outer"]


@pytest.mark.parametrize(
    "value", [True, 1.0, None, "1", np.bool_(True), torch.tensor([1]), torch.tensor(True)]
)
def test_as_int_refuses_other_objects_than_integers(value):
    with pytest.raises(TypeError, match=f"dim must be an int, not {type(value).__name__}"):
        as_int("dim", value)


def test_as_int_names_the_argument_if_a_tensor_has_no_integer():
    with pytest.raises(TypeError) as caught:
        as_int("dim", torch.tensor(1.5))
    assert caught.value.__notes__ == ["Argument: dim"]


@pytest.mark.parametrize("value", [-1, np.int64(-1), torch.tensor(-1)])
def test_as_int_returns_an_int(value):
    assert as_int("dim", value) == -1
    assert type(as_int("dim", value)) is int


def test_as_tensors_names_the_index_of_an_object_that_is_no_tensor():
    x = torch.ones(1)
    assert as_tensors("inputs", iter([x])) == [x]
    with pytest.raises(TypeError, match=r"inputs\[1\] must be a tensor, not int"):
        as_tensors("inputs", [x, 1])
    with pytest.raises(TypeError) as caught:
        as_tensors("inputs", 5)
    assert caught.value.__notes__ == ["Argument: inputs"]


X = torch.ones(4, 2)
#: Wrong values, besides objects of another kind: the case, the changed arguments, the class of the
#: error, and the argument in its note.
WRONG = [
    ("scatter", {"dim": 2}, IndexError, "inputs or dim"),
    ("scatter_kwargs", {"inputs": X, "kwargs": None}, RuntimeError, "inputs"),
    ("gather", {"dim": np.ones(2), "scalar_warning": False}, TypeError, "dim"),
    ("gather", {"scalar_warning": X}, RuntimeError, "scalar_warning"),
    ("replicate", {"detach": X}, RuntimeError, "detach"),
    ("replicate", {"with_parameters": X}, RuntimeError, "with_parameters"),
    ("parallel_apply", {"modules": {abs}}, TypeError, "modules"),
    ("parallel_apply in turn", {"inputs": {0, 1}}, TypeError, "inputs, kwargs_tup or devices"),
    ("parallel_apply in turn", {"in_turn": X}, RuntimeError, "in_turn"),
    ("DataParallel", {"device_ids": []}, IndexError, "device_ids"),
    ("DataParallel", {"chunk_sizes": [1]}, ValueError, "chunk_sizes"),
    ("DataParallel", {"in_turn": X}, RuntimeError, "in_turn"),
    ("DataParallel", {"scalar_warning": X}, RuntimeError, "scalar_warning"),
    ("DataParallel", {"module_attributes": X}, RuntimeError, "module_attributes"),
    ("DataParallel.map", {"ordered": X}, RuntimeError, "ordered"),
    ("functions.ReduceAddCoalesced", {"num_inputs": 0}, ValueError, "num_inputs"),
]


@pytest.mark.parametrize(("case", "changed", "kind", "names"), WRONG)
@pytest.mark.usefixtures("topology")
def test_errors_of_public_functions_name_the_argument(case, changed, kind, names):
    function = CASES[case].find()
    with pytest.raises(Exception) as caught:
        function(**(CASES[case].arguments() | changed))
    assert type(caught.value) is kind
    assert caught.value.__notes__ == [f"Argument: {names}"]


@pytest.mark.usefixtures("topology")
def test_every_argument_of_every_public_function_has_a_case():
    tried = {
        (name.split(" ")[0], argument)
        for name, case in CASES.items()
        for argument in case.arguments()
    }
    assert set(public_arguments()) - tried == set()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("topology")
def test_an_error_for_an_object_of_another_kind_names_the_argument(name):
    assert list(errors_without_the_name(CASES[name])) == []


def errors_without_the_name(case):
    """Yield each argument whose error for an object is in no table and does not name it."""
    function = case.find()
    for name in case.arguments():
        try:
            function(**(case.arguments() | {name: object()}))
        except Exception as error:
            if not (is_named(error, name) or is_in_table(error, name)):
                yield name, repr(error)


def is_named(error, argument_name):
    """Return whether the text of an error or a note has the name of the argument."""
    texts = [text_without_traceback(error), *getattr(error, "__notes__", ())]
    return re.search(rf"\b{argument_name}\b", "\n".join(texts)) is not None


def is_in_table(error, argument_name):
    expected = [row for names, *row in UNNAMED_ERRORS if argument_name in names.split("|")]
    text = text_without_traceback(error)
    return any(type(error) is kind and re.fullmatch(each, text, re.S) for kind, each in expected)


def text_without_traceback(error):
    """Return the text of an error; of an error of a replica, the last lines."""
    text = str(error)
    if text.startswith("Caught "):
        text = text.rpartition(f"\n{type(error).__name__}: ")[2].strip()
    return text


@pytest.mark.usefixtures("topology")
def test_scatter_kwargs_reads_an_iterator_of_devices_once():
    x = torch.ones(2)
    inputs, kwargs = impl.scatter_gather.scatter_kwargs((x,), {"x": x}, iter(["cpu", "cpu"]))
    assert [len(inputs), len(kwargs)] == [2, 2]


def test_a_tensor_is_accepted_as_a_sequence_of_its_rows(topology):
    x = torch.arange(4.0, device=topology.device(0)).view(2, 2)
    assert torch.equal(impl.gather(x, topology.device(0)), x.flatten())
    assert torch.equal(impl.comm.reduce_add(x, topology.device(0)), x.sum(0))
