"""impl._compat.torch_private: the one way to private names of PyTorch, each of them documented."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from impl._compat import torch_private

IMPL = Path(torch_private.__file__).parents[1]
TREES = {
    path.relative_to(IMPL).as_posix(): ast.parse(path.read_text("utf-8"))
    for path in IMPL.rglob("*.py")
}
OTHERS = sorted(TREES.keys() - {"_compat/torch_private.py"})
ENTRIES = [getattr(torch_private, name) for name in torch_private.__all__]
#: Of nn.Module's instances, of named tuples, of asyncio for those who write event loops.
ALLOWED = {
    *("_modules", "_parameters", "_buffers", "_former_parameters", "_is_replica"),
    *("_compiled_call_impl", "_call_impl", "_replicate_for_data_parallel"),
    "_has_compiled_code",  # impl's own mark.
    *("_fields", "_make", "_asdict", "_get_running_loop"),
}
PRIVATE = re.compile(r"([A-Za-z]\w*\.)*_[a-z]\w*(\.\w+)*|torch(\.\w+)*\._\w+(\.\w+)*")
REACHING = {
    "an attribute": "torch._C.x",
    "an attribute of an object": "tensor.grad_fn._set_sequence_nr(1)",
    "an import": "import torch._dynamo.eval_frame",
    "a name that is imported": "from torch.autograd.graph import _engine_run_backward",
    "a private module": "from torch.utils._device import DeviceContext",
    "a text": 'sys.modules.get("torch._dynamo.eval_frame")',
    "an attribute's name": 'getattr(tensor, "_values")',
}


def own(tree):
    """Give the private names that a module makes, in itself and in its objects."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(asname=str(name))
            ):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


OWN = {name for tree in TREES.values() for name in own(tree)}


def reached(tree):
    """Give the private names that a module takes from somewhere else."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name):
                names = [name]
            case ast.Import(names=aliases):
                names = [part for alias in aliases for part in alias.name.split(".")]
            case ast.ImportFrom(level=0, module=module, names=aliases):
                names = [*module.split("."), *(alias.name for alias in aliases)]
            case ast.Constant(value=str(text)) if PRIVATE.fullmatch(text):
                names = [] if text.startswith("torch.nn.parallel.") else text.split(".")
            case _:
                continue
        yield from (n for n in names if n.startswith("_") and not n.startswith("__"))


@pytest.mark.parametrize("module", OTHERS)
def test_private_names_of_pytorch_are_reached_through_it(module):
    assert set(reached(TREES[module])) <= OWN | ALLOWED


@pytest.mark.parametrize("way", REACHING)
def test_every_way_to_a_private_name_is_seen(way):
    assert set(reached(ast.parse(REACHING[way]))) - OWN - ALLOWED


def test_nothing_of_pytorch_is_called_like_a_name_of_impl():
    # Such a name would pass for impl's own wherever it is reached.
    assert not set(reached(TREES["_compat/torch_private.py"])) & (
        OWN - set(own(TREES["_compat/torch_private.py"]))
    )


@pytest.mark.parametrize("entry", ENTRIES, ids=torch_private.__all__)
def test_an_entry_says_what_it_stands_for_and_what_would_be_lost(entry):
    assert re.search(r"Name: .*since <= 2\.\d+\.\n *Without it: ", entry.__doc__, re.DOTALL)


@pytest.mark.parametrize("entry", ENTRIES, ids=torch_private.__all__)
def test_what_an_entry_stands_for_is_there(entry):
    for name in re.findall(r"``(torch\.[\w.]+)``", entry.__doc__.partition("Name:")[2]):
        found = importlib.import_module("torch")
        for part in name.split(".")[1:]:
            if not hasattr(found, part):
                importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)


FROM = ("_compat", "torch_private")


def test_every_entry_is_used():
    users = sorted(set(OTHERS) - {"_compat/__init__.py"})
    imports = [node for name in users for node in ast.walk(TREES[name])]
    taken = [n for n in imports if isinstance(n, ast.ImportFrom) and n.module in FROM]
    assert {alias.name for node in taken for alias in node.names} >= set(torch_private.__all__)
