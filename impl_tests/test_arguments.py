"""impl._arguments: errors that name the argument."""

import importlib
import inspect
import re

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import impl
from impl._arguments import argument, as_int, as_tensors
from impl_tests.helpers.cases import CASES
from spec_tests.machine import process_state


def _closed_generator():
    generator = (index for index in range(2))
    generator.close()
    return generator


def _cyclic_list():
    items = []
    items.append(items)
    return items


def _ones(*shape, device="sim:0"):
    return torch.ones(shape, device=device)


#: For each wrong value: a function that returns it. For some argument each value causes an error
#: in a line of impl, or with a note, for which no other value does. Some values are left out,
#: because Python's or PyTorch's own functions do not return for them: ``list`` does not end for an
#: infinite iterator, and ``torch.add`` ends the process for an object whose ``__class__`` is
#: Tensor and for a tensor whose storage is freed.
VALUES = {
    "None": lambda: None,
    "0": lambda: 0,
    "-3": lambda: -3,
    "4": lambda: 4,
    "2**63": lambda: 2**63,
    "numpy integer": lambda: np.int64(0),
    "text of a number": lambda: "0",
    "text of the CPU": lambda: "cpu",
    "bytes": lambda: b"sim:0",
    "[0]": lambda: [0],
    "[1, 0]": lambda: [1, 0],
    "[0, 0]": lambda: [0, 0],
    "[-1, 0]": lambda: [-1, 0],
    "[0, 99]": lambda: [0, 99],
    "[2**63, 0]": lambda: [2**63, 0],
    "CPU twice": lambda: ["cpu", "cpu"],
    "CPU and device": lambda: ["cpu", 0],
    "dictionary": lambda: {"x": 1},
    "set": lambda: {0, 1},
    "numpy objects": lambda: np.array([None, "x"], dtype=object),
    "cyclic list": _cyclic_list,
    "closed generator": _closed_generator,
    "object()": object,
    "torch.nn.Linear": lambda: nn.Linear,
    "lambda": lambda: lambda *args, **kwargs: None,
    "storage": lambda: torch.ones(2).untyped_storage(),
}
#: The same for tensors, lists of tensors and modules. PyTorch's own errors are about the tensor.
TENSOR_VALUES = {
    "meta tensor": lambda: _ones(4, 3, device="meta"),
    "scalar": lambda: torch.tensor(1.5),
    "scalar of sim:0": lambda: torch.tensor(0, device="sim:0"),
    "tensor without rows": lambda: _ones(0, 3),
    "tensor of one row": lambda: _ones(1, 3),
    "tensor of 9 dimensions": lambda: _ones(*[1] * 9),
    "float8": lambda: torch.ones(4, 3).to(torch.float8_e4m3fn),
    "COO of sim:0": lambda: torch.eye(2).to_sparse().to("sim:0"),
    "CSR": lambda: torch.eye(2).to_sparse_csr(),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "uninitialized parameter": lambda: nn.UninitializedParameter(),
    "requires grad": lambda: _ones(4, 3).requires_grad_(),
    "list of different shapes": lambda: [_ones(2), _ones(3, 3, device="sim:1")],
    "list with meta": lambda: [_ones(2), _ones(2, device="meta")],
    "lists of tensors": lambda: [[_ones(2)], []],
    "module of the CPU": lambda: nn.Linear(3, 2),
    "meta module": lambda: nn.Linear(3, 2, device="meta"),
    "lazy module": lambda: nn.LazyLinear(2),
    "module without __init__": lambda: nn.Linear.__new__(nn.Linear),
    "module without forward": nn.Module,
}


#: The arguments that name devices.
DEVICES = "devices|device_ids|target_gpus|target_device|destination|output_device"
#: Errors that do not name the argument: the arguments, the exact class and the whole text. Most
#: texts are those of torch.nn.parallel or PyTorch, and name the value.
UNNAMED_ERRORS = [
    ("dim", IndexError, r"Dimension out of range \(expected .*, but got -?\d+\)"),
    ("dim", ValueError, "Overflow when unpacking long long.*"),
    ("x|batches|inputs|module_kwargs|value", RecursionError, "maximum recursion depth exceeded.*"),
    ("target_gpus", RuntimeError, r"All tensors must be on devices\[0\]: .*"),
    ("target_gpus", RuntimeError, "Expected devices and chunk_sizes to be of same length, .*"),
    (DEVICES, RuntimeError, "Expected at least one device to scatter to"),
    (DEVICES, ValueError, "Expected at least one device to broadcast to"),
    ("out", RuntimeError, "Expected at least one output tensor to scatter to"),
    ("out", TypeError, "'NoneType' object is not iterable"),
    ("tensors", RuntimeError, "Expected at least one tensor to gather from"),
    (DEVICES, RuntimeError, r"Expected non-negative device index, but got -\d+"),
    (DEVICES, RuntimeError, "Expected one of cpu, cuda, .* at start of device string: [cx]"),
    (DEVICES, RuntimeError, "Invalid device string: '0'"),
    (DEVICES, RuntimeError, r"There is no device (with the index \d+|sim:\d+: the number .*)"),
    (DEVICES, RuntimeError, "sim error: invalid device ordinal .*"),
    (DEVICES, ValueError, "Expected a non cpu device, but got: ?.*"),
    (DEVICES, ValueError, "Expected a torch.device with a specified index or an integer, .*"),
    (DEVICES, TypeError, r"a device must be an int, a str, a torch.device or None, not \w+"),
    ("num_inputs", RuntimeError, "reduce_add expects destination to be on the same GPU .*"),
    ("chunk_sizes", RuntimeError, "split_with_sizes expects split_sizes .*"),
    ("chunk_sizes", TypeError, r"split_with_sizes\(\): argument 'split_sizes' .*"),
    # The function has these arguments as ``*grads`` and ``*inputs``.
    ("first|second", TypeError, r"grads\[[01]\] must be a tensor, not \w+"),
    ("input|first|second", TypeError, r"inputs\[[01]\] must be a tensor, not \w+"),
    ("module_kwargs", ValueError, "The truth value of an array .*"),
    ("module_kwargs", TypeError, "keywords must be strings"),
    ("x", ValueError, "no argument of 'forward' contains a tensor to split, .*"),
    # Tensors and modules.
    ("inputs|value|batches", NotImplementedError, r"(args|inputs)\[\d\] has the layout .*"),
    ("inputs|value", ValueError, "cannot split over 2 devices together: .*"),
    ("inputs|first|second", ValueError, r"input 1 has invalid size: got \S+, but expected \d+"),
    ("first|second", AssertionError, r"reduce_add expects all inputs to be on GPUs, .* on CPU"),
    ("criterion", AttributeError, "'Linear' object has no attribute '_modules'"),
    ("input", NotImplementedError, "\"batch_norm\" not implemented for 'Float8_e4m3fn'"),
    ("input", RuntimeError, "running_mean should contain 2 elements not 3"),
    ("value", IndexError, r"Dimension out of range \(expected .*, but got 1\)"),
    ("value", RuntimeError, "Given dimension 1 is irregular and does not have a size."),
    # The arguments of a replica, which its error names by the signature of its module.
    ("modules", TypeError, r"'\w+' object is not callable"),
    ("target", AttributeError, r".* has no attribute 'size'"),
    ("target", TypeError, r"'\w+' object is not callable"),
    ("target", TypeError, "expected Tensor as element 1 in argument 0, but got .*"),
    ("method", TypeError, r"Module\.cpu\(\) .*"),
    ("inputs|module_kwargs", TypeError, r"Net\.forward\(\) .* argument: ?'x'"),
    ("inputs", TypeError, r"Net\.forward\(\) got multiple values for argument 'x'"),
    ("kwargs_tup|module_kwargs", TypeError, r".* argument after \*\* must be a mapping, not .*"),
    ("x|batches|inputs|module_kwargs", TypeError, r"linear\(\): argument 'input' .*"),
]
#: Texts of PyTorch's errors about a tensor or a module: the word tensor, or one of the others.
OF_TENSORS = re.compile(
    "|".join(
        (
            r"\b(tensors?|NestedTensorImpl|aten)\b",
            "an uninitialized parameter",
            "mat1 and mat2 must have the same dtype",
            "both arguments to linear need to be at least 1D",
            r"addmm: Argument #3 \(dense\)",
            r"\bview\b.* modified inplace",
            r"Module \[Module\] is missing the required \"forward\" function",
            r"\w+\(\) got an unexpected keyword argument 'x'",
            r"module must have its parameters and buffers on device \S+ \(device_ids\[0\]\)",
        )
    ),
    re.IGNORECASE,
)
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
    "distributed.": ("distributed",),
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
#: Wrong values that ``VALUES`` lacks: the case, the changed arguments, the class of the error, and
#: the argument in its note.
WRONG = [
    ("scatter", {"target_gpus": 1}, TypeError, "target_gpus"),
    ("scatter", {"dim": 2}, IndexError, "inputs or dim"),
    ("scatter_kwargs", {"inputs": X, "kwargs": None}, RuntimeError, "inputs"),
    ("gather", {"outputs": 1}, TypeError, "outputs"),
    ("gather", {"dim": np.ones(2), "scalar_warning": False}, TypeError, "dim"),
    ("gather", {"scalar_warning": X}, RuntimeError, "scalar_warning"),
    ("replicate", {"detach": X}, RuntimeError, "detach"),
    ("replicate", {"network": 1}, AttributeError, "network"),
    ("replicate", {"with_parameters": X}, RuntimeError, "with_parameters"),
    ("parallel_apply", {"modules": {abs}}, TypeError, "modules"),
    ("parallel_apply", {"inputs": 1}, TypeError, "inputs"),
    ("parallel_apply in turn", {"inputs": {0, 1}}, TypeError, "inputs, kwargs_tup or devices"),
    ("parallel_apply in turn", {"in_turn": X}, RuntimeError, "in_turn"),
    ("DataParallel", {"device_ids": 1.5}, TypeError, "device_ids"),
    ("DataParallel", {"device_ids": []}, IndexError, "device_ids"),
    ("DataParallel", {"chunk_sizes": [1]}, ValueError, "chunk_sizes"),
    ("DataParallel", {"in_turn": X}, RuntimeError, "in_turn"),
    ("DataParallel", {"scalar_warning": X}, RuntimeError, "scalar_warning"),
    ("DataParallel", {"module_attributes": X}, RuntimeError, "module_attributes"),
    ("DataParallel.map", {"ordered": X}, RuntimeError, "ordered"),
    ("comm.broadcast", {"devices": 1}, TypeError, "devices"),
    ("comm.broadcast_coalesced", {"tensors": 5}, TypeError, "tensors"),
    ("comm.scatter", {"chunk_sizes": 1}, TypeError, "chunk_sizes"),
    ("comm.scatter", {"streams": 1}, RuntimeError, "streams"),
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


@pytest.fixture
def process_group():
    """End the process group of this process that a case has made."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def find_other_errors(name, values, accepts=lambda error, argument: False):
    """Return the errors for wrong values that are in no table, with the argument and the value.

    Args:
        name: A name of ``CASES``.
        values: Name of a wrong value -> a function that returns it.
        accepts: A function of an error and an argument that accepts errors that are in no table.
    """
    case, found = CASES[name], []
    function = case.find()
    for argument_name in case.arguments():
        for value, make in values.items():
            try:
                function(**(case.arguments() | {argument_name: make()}))
            except Exception as error:
                if not (is_in_table(error, argument_name) or accepts(error, argument_name)):
                    found.append((argument_name, value, repr(error)))
    return found


def is_in_table(error, argument_name):
    """Return whether an error names the argument, or has the exact class and text of the table."""
    expected = [row for names, *row in UNNAMED_ERRORS if argument_name in names.split("|")]
    text = text_without_traceback(error)
    return is_named(error, argument_name) or any(
        type(error) is kind and re.fullmatch(each, text, re.S) for kind, each in expected
    )


def is_named(error, argument_name):
    """Return whether the text of an error or a note has the name of the argument."""
    texts = [text_without_traceback(error), *getattr(error, "__notes__", ())]
    return re.search(rf"\b{argument_name}\b", "\n".join(texts)) is not None


def text_without_traceback(error):
    """Return the text of an error; of an error of a replica, the last lines."""
    text = str(error)
    if text.startswith("Caught "):
        text = text.rpartition(f"\n{type(error).__name__}: ")[2].strip()
    return text


def is_of_tensors(error, argument_name):
    """Return whether an error has the name of the argument, or is PyTorch's about a tensor."""
    text = text_without_traceback(error)
    return is_named(error, argument_name) or OF_TENSORS.search(text) is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("distributed.")])
@pytest.mark.usefixtures("topology")
def test_an_error_for_an_object_of_another_kind_names_the_argument(name):
    values = {value: VALUES[value] for value in ("object()", "closed generator")}
    assert find_other_errors(name, values) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("process_group")
def test_the_error_for_a_wrong_value_names_the_argument(topology, name):
    CASES[name].find()(**CASES[name].arguments())  # A process group installs a hook.
    before = process_state.read(topology)
    assert find_other_errors(name, VALUES) == []
    assert find_other_errors(name, TENSOR_VALUES, is_of_tensors) == []
    assert process_state.changes(before, process_state.read(topology)) == ()


@pytest.mark.usefixtures("topology")
def test_scatter_kwargs_reads_an_iterator_of_devices_once():
    x = torch.ones(2)
    inputs, kwargs = impl.scatter_gather.scatter_kwargs((x,), {"x": x}, iter(["cpu", "cpu"]))
    assert [len(inputs), len(kwargs)] == [2, 2]


def test_a_tensor_is_accepted_as_a_sequence_of_its_rows(topology):
    x = torch.arange(4.0, device=topology.device(0)).view(2, 2)
    assert torch.equal(impl.gather(x, topology.device(0)), x.flatten())
    assert torch.equal(impl.comm.reduce_add(x, topology.device(0)), x.sum(0))
