"""impl._compat.compiler_private: functions that torch.compile skips, and calls after backward."""

from functools import partial

import pytest
import torch

from impl._compat import call_after_backward, compile_only_inlined, exclude_from_compilation


def compiled_operators(function):
    """Compile and call ``function``. Return the names of the operators in the compiled graphs."""
    names = set()

    def backend(graph, inputs):
        names.update(node.target.__name__ for node in graph.graph.nodes if callable(node.target))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(torch.ones(2))
    return names


def cos(x):
    return torch.cos(x)


def sin_of_cos(x):
    return torch.sin(cos(x))


@pytest.mark.parametrize(
    ("decorate", "expected"),
    [
        (exclude_from_compilation, {"tan"}),
        (partial(exclude_from_compilation, has_callees=False), {"tan", "cos"}),
        (compile_only_inlined, {"tan", "sin", "cos"}),
    ],
    ids=["excluded", "without its callees", "inlined"],
)
def test_a_function_is_compiled_in_its_compiled_caller(decorate, expected):
    def sin(x):
        return torch.sin(cos(x))

    sin = decorate(sin)
    assert compiled_operators(lambda x: torch.tan(sin(x))) == expected


def test_a_function_is_not_compiled_by_itself():
    sin = compile_only_inlined(lambda x: torch.sin(cos(x)))

    @partial(exclude_from_compilation, has_callees=False)
    def caller(x):
        return sin(x)

    assert compiled_operators(caller) == {"cos"}


def test_an_excluded_function_states_the_reason():
    excluded = exclude_from_compilation(lambda x: x + 1)
    with pytest.raises(Exception, match="impl"):
        torch.compile(lambda x: excluded(x), fullgraph=True, backend="eager")(torch.ones(2))


def test_a_function_is_called_after_backward():
    x, calls = torch.ones(2, requires_grad=True), []
    x.register_hook(lambda grad: call_after_backward(lambda: calls.append(x.grad)))
    x.sum().backward()
    assert [grad.tolist() for grad in calls] == [[1.0, 1.0]]
