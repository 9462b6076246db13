"""impl.distributed: refused modules, options and calls, and the texts of their errors."""

import pytest
import torch

from impl_tests.distributed import failing_calls, probes
from impl_tests.distributed.pool import Raised
from impl_tests.distributed.training import check_close


def check_same_error(found, kind, *parts):
    """Fail unless every rank raises the same error, with ``parts`` in its text."""
    __tracebackhide__ = True
    assert len({repr(result) for result in found}) == 1, found
    assert isinstance(found[0], Raised), found
    assert found[0].kind == kind, found
    assert not [part for part in parts if part not in found[0].text], found


@pytest.mark.parametrize("size", [1, 3])
def test_double_backward_is_refused(pool, size):
    found = pool.run(size, failing_calls.differentiate_twice)
    check_same_error(found, "RuntimeError", "does not support double backward", "create_graph")


@pytest.mark.parametrize("api", ["autograd.grad", "backward-inputs"])
@pytest.mark.parametrize("size", [1, 2])
def test_gradients_of_some_parameters_only_are_refused(pool, size, api):
    found = pool.run(size, failing_calls.differentiate_some_parameters, api)
    check_same_error(found, "RuntimeError", "loss.backward() only")


@pytest.mark.parametrize("api", ["autograd.grad", "backward-inputs"])
def test_gradients_of_inputs_only_are_those_of_the_whole_batch(pool, api):
    x = probes.make_rank_rows(3).requires_grad_()
    (probes.make_linear()(x) ** 2).sum().backward()
    check_close(pool.run(3, failing_calls.differentiate_inputs, api), [x.grad] * 3)


@pytest.mark.parametrize(
    "difference",
    ["weight is (3, 2)", "weight is (2, 2) of torch.float64", "bias is "],
    ids=["shape", "dtype", "extra-parameter"],
)
@pytest.mark.parametrize("different_rank", [1, 2], ids="rank={}".format)
def test_different_modules_are_refused_on_every_rank(pool, different_rank, difference):
    found = pool.run(3, failing_calls.wrap_different_module, different_rank, difference)
    text = f"the module of rank {different_rank} differs from that of rank 0"
    check_same_error(found, "RuntimeError", text, difference)


def test_a_parameter_that_only_rank_zero_has_is_refused(pool):
    found = pool.run(3, failing_calls.wrap_different_module, 0, "bias is ")
    check_same_error(found, "RuntimeError", "the module of rank 1 differs", "bias is missing")


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_sparse_gradients_are_refused(pool, kind):
    found = pool.run(2, failing_calls.wrap_sparse_module, kind)
    check_same_error(found, "NotImplementedError", "gradients of 0 are sparse", "sparse=False")


@pytest.mark.parametrize("is_frozen", [False, True], ids="is_frozen={}".format)
@pytest.mark.parametrize("size", [2, 4])
def test_wrapping_broadcasts_parameters_and_buffers_of_rank_zero(pool, size, is_frozen):
    expected = [(torch.ones(2), torch.ones(2))] * size
    check_close(pool.run(size, failing_calls.wrap_different_values, is_frozen), expected)


def test_missing_process_group_is_refused(start_pool):
    found = start_pool(2).run(2, failing_calls.wrap_without_group)
    check_same_error(found, "RuntimeError", "no process group", "init_process_group", "torchrun")


def test_a_process_outside_the_group_is_refused(pool):
    *members, outsider = pool.run(4, failing_calls.wrap_outside_group)
    assert members == [None] * 3
    check_same_error([outsider], "RuntimeError", "not in the process group")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"chunk_sizes": [1, 2, 3]}, "3 chunk sizes for 2 devices", id="count"),
        pytest.param({"chunk_sizes": [1, -1]}, "negative", id="negative"),
        pytest.param({"chunk_sizes": [0, 0]}, "every chunk size is 0", id="zeros"),
        pytest.param({"source": 2}, "source 2 is not a rank", id="source=2"),
        pytest.param({"source": -1}, "source -1 is not a rank", id="source=-1"),
    ],
)
def test_wrong_options_are_refused(pool, options, text):
    found = pool.run(2, failing_calls.wrap_with_options, **options)
    check_same_error(found, "ValueError", text)


def test_errors_name_the_argument(pool):
    (lines,) = pool.run(1, failing_calls.report_wrong_arguments)
    assert lines[:6] == [
        "TypeError: module must be a Module, not builtin_function_or_method []",
        "TypeError: dim must be an int, not list ['Argument: dim']",
        "TypeError: source must be an int, not bool ['Argument: source']",
        "TypeError: object of type 'int' has no len() ['Argument: chunk_sizes']",
        "TypeError: losses must be a tensor, not list []",
        "ValueError: all ranks have passed losses without elements to mean []",
    ]
    assert lines[-1].endswith("['Argument: value']")


@pytest.mark.parametrize("place", range(3))
def test_hooks_that_run_before_the_sum_of_the_ranks_are_refused(pool, place):
    """An optimizer that steps in such a hook would make the parameters of the ranks differ."""
    found = pool.run(1, failing_calls.step_with_hook, place)
    text = "1.bias has a hook of register_post_accumulate_grad_hook"
    check_same_error(found, "NotImplementedError", text)


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        ("shape", "args[0] has shape"),
        ("dtype", "args[0] has dtype"),
        ("elements", "elements of args[0]"),
    ],
    ids=["shape", "dtype", "elements"],
)
@pytest.mark.parametrize("different_rank", [0, 1, 3], ids="rank={}".format)
def test_different_inputs_are_refused_on_every_rank(pool, different_rank, difference, text):
    found = pool.run(4, failing_calls.call_with_different_inputs, different_rank, difference)
    check_same_error(found, "ValueError", f"rank {different_rank} has different inputs", text)


def test_equal_inputs_pass_the_check(pool):
    check_close(pool.run(2, failing_calls.call_with_equal_inputs), [probes.make_rank_rows(2)] * 2)
