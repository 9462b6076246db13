"""distributed: what is refused, with a text that says what to do."""

import pytest
import torch

from spec_tests.distributed import probes, refused
from spec_tests.distributed.pool import Raised
from spec_tests.distributed.training import close
from spec_tests.harness.conformance.clauses import clause


def same_error(found, kind, *parts):
    """Fail unless every rank has raised the same, with ``parts`` in its text."""
    __tracebackhide__ = True
    assert len({repr(each) for each in found}) == 1, found
    assert isinstance(found[0], Raised), found
    assert found[0].kind == kind, found
    assert not [part for part in parts if part not in found[0].text], found


@clause("distributed.double-backward")
@pytest.mark.parametrize("size", [1, 3])
def test_a_second_derivative_is_refused(ranks, size):
    found = ranks.run(size, refused.twice_differentiated)
    same_error(found, "RuntimeError", "cannot be differentiated twice", "create_graph=True")


@clause("distributed.singled-out-parameters")
@pytest.mark.parametrize("way", ["grad", "inputs"])
def test_gradients_of_some_parameters_only_are_refused(ranks, way):
    same_error(ranks.run(2, refused.singled_out, way), "RuntimeError", "loss.backward() only")


@clause("distributed.singled-out-arguments")
@pytest.mark.parametrize("way", ["grad", "inputs"])
def test_gradients_of_arguments_only_are_whole(ranks, way):
    x = probes.numbered(3).requires_grad_()
    (probes.linear()(x) ** 2).sum().backward()
    close(ranks.run(3, refused.of_arguments, way), [x.grad] * 3)


@clause("distributed.unlike-modules")
@pytest.mark.parametrize(
    "how", ["weight is (3, 2)", "weight is (2, 2) of torch.float64", "bias is "]
)
@pytest.mark.parametrize("odd", [1, 2])
def test_unlike_modules_are_refused_on_every_rank(ranks, odd, how):
    found = ranks.run(3, refused.unlike, odd, how)
    same_error(found, "RuntimeError", f"rank {odd} has another module than rank 0", how)


@clause("distributed.unlike-modules")
def test_rank_zero_is_compared_with_the_next(ranks):
    found = ranks.run(3, refused.unlike, 0, "bias is ")
    same_error(found, "RuntimeError", "rank 1 has another module", "bias is missing")


@clause("distributed.sparse-gradients")
@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_sparse_gradients_are_refused(ranks, kind):
    found = ranks.run(2, refused.sparse, kind)
    same_error(found, "NotImplementedError", "gradients of 0 are sparse", "sparse=False")


@clause("distributed.starts-from-rank-zero")
@pytest.mark.parametrize("size", [2, 4])
def test_parameters_and_buffers_are_at_first_those_of_rank_zero(ranks, size):
    close(ranks.run(size, refused.of_rank_zero), [(torch.ones(2), torch.ones(2))] * size)


@clause("distributed.group")
def test_a_missing_group_is_refused(new_ranks):
    found = new_ranks(2).run(2, refused.without_group)
    same_error(found, "RuntimeError", "no process group", "init_process_group", "torchrun")


@clause("distributed.group")
def test_who_is_not_in_the_group_is_refused(ranks):
    *members, outsider = ranks.run(4, refused.outsider)
    assert members == [None] * 3
    same_error([outsider], "RuntimeError", "not in the process group")


@clause("distributed.options")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"chunk_sizes": [1, 2, 3]}, "3 chunk sizes for 2 devices"),
        ({"chunk_sizes": [1, -1]}, "negative"),
        ({"chunk_sizes": [0, 0]}, "every chunk size is 0"),
        ({"source": 2}, "source is rank 2 of 2"),
        ({"source": -1}, "source is rank -1 of 2"),
    ],
)
def test_wrong_options_are_refused(ranks, options, text):
    same_error(ranks.run(2, refused.with_options, **options), "ValueError", text)


@clause("distributed.check-inputs")
@pytest.mark.parametrize("how", ["shape", "dtype", "elements"])
@pytest.mark.parametrize("odd", [0, 1, 3])
def test_other_arguments_of_one_rank_are_found(ranks, odd, how):
    found = ranks.run(4, refused.differing, odd, how)
    same_error(found, "ValueError", f"rank {odd} has other arguments: args[0] has", how)


@clause("distributed.check-inputs")
def test_equal_arguments_pass_the_check(ranks):
    close(ranks.run(2, refused.alike), [probes.numbered(2)] * 2)
