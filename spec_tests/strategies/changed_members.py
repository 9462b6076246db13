"""Modules whose forward changes the parameters of one of their submodules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import stateless

from spec_tests.machine.devices import Topology
from spec_tests.strategies.calls import device_lists
from spec_tests.strategies.data_parallel import FUNCTIONAL, PRECISE, DataParallelCall
from spec_tests.strategies.layers import seeded, square_layer
from spec_tests.strategies.module_kinds import MODULE_KINDS
from spec_tests.strategies.modules import ModuleSpec, module_specs, move

#: A change of a parameter of a module, given the module, the name and the doubled parameter.
_Change = Callable[[nn.Module, str, Tensor], object]


def _replace_by_tensor(owner: nn.Module, name: str, tensor: Tensor) -> None:
    delattr(owner, name)
    setattr(owner, name, tensor)


def _set_none(owner: nn.Module, name: str, tensor: Tensor) -> None:
    if name == "bias":
        setattr(owner, name, None)


def _delete(owner: nn.Module, name: str, tensor: Tensor) -> None:
    if name == "bias":
        delattr(owner, name)
        vars(owner)[name] = None  # The forward of the owner reads it.


def _register(owner: nn.Module, name: str, tensor: Tensor) -> None:
    if name in owner._parameters:
        owner.register_parameter(name, nn.Parameter(tensor.detach()))


def _load(owner: nn.Module, name: str, tensor: Tensor) -> None:
    owner.load_state_dict({name: nn.Parameter(tensor)}, strict=False, assign=True)


def _keep(owner: nn.Module, name: str, tensor: Tensor) -> None:
    """Do not change the module, which is called with the tensor."""


#: Changes that a replica without parameters allows, too.
REPLACEMENTS: Mapping[str, _Change] = {
    "double": _keep,
    "replace_by_tensor": _replace_by_tensor,
    "replace_by_parameter": lambda owner, name, tensor: setattr(
        owner, name, nn.Parameter(tensor.detach())
    ),
    "set_none": _set_none,
    "delete": _delete,
}
#: Changes that need a replica with parameters.
REGISTRATIONS: Mapping[str, _Change] = {
    "register": _register,
    "load": _load,
    "double_named": _keep,
}
CHANGES = {**REPLACEMENTS, **REGISTRATIONS}
#: The changes that a script module allows.
_OF_SCRIPT_MODULES = ("double", "replace_by_parameter", "register")


#: For each kind: a layer that is no kind of :mod:`layers`, because it cannot be copied by
#: ``deepcopy`` or has no parameters at first.
LAST_LAYERS: Mapping[str, Callable[[], nn.Module]] = {
    **{kind: MODULE_KINDS[kind] for kind in ("empty", "weight_norm_hook", "materialised")},
    "script": lambda: torch.jit.script(square_layer()),
    "script_tree": lambda: torch.jit.script(nn.Sequential(square_layer(), nn.Tanh())),
}


class ChangesMembers(nn.Module):
    """A module that calls ``net`` once for each of ``changes``, after this change.

    ``number`` selects the changed submodule among those with parameters.
    """

    def __init__(self, net: nn.Module, number: int, changes: Sequence[str]) -> None:
        super().__init__()
        self.net = net
        names = [name for name, module in net.named_modules() if _own_parameters(module)]
        self.owner = names[number % len(names)] if names else ""
        self.names = _own_parameters(net.get_submodule(self.owner))
        self.changes = changes

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the last call. Each call gets the output of the one before."""
        prefix = self.owner and f"{self.owner}."
        for change in self.changes:
            owner, make = self.net.get_submodule(self.owner), CHANGES[change]
            is_named = change == "double_named"
            names = _own_parameters(owner) if is_named else self.names
            found = {name: getattr(owner, name) for name in names}
            doubled = {name: tensor * 2 for name, tensor in found.items() if tensor is not None}
            for name, tensor in doubled.items():
                make(owner, name, tensor)
            passed = {f"{prefix}{name}": tensor for name, tensor in doubled.items()}
            # `torch.func.functional_call` does the same, but refuses script modules.
            with stateless._reparametrize_module(self.net, passed if make is _keep else {}):
                x = self.net(x)
        return x


def _own_parameters(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters(recurse=False)]


@dataclass(frozen=True)
class ChangesMembersSpec:
    """A description of a :class:`ChangesMembers`: its network, one more layer, and the changes."""

    network: ModuleSpec
    last: str
    number: int
    changes: tuple[str, ...]

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return a new module on device number ``slot``, or on the CPU if ``slot`` is None."""
        last = seeded(LAST_LAYERS[self.last]).to(self.network.dtype)
        net = nn.Sequential(self.network.build(topology, None), last)
        return ChangesMembers(move(net, topology.device(slot)), self.number, self.changes)


@st.composite
def changes_members_specs(
    draw: st.DrawFn, changes: Sequence[str] = tuple(CHANGES)
) -> ChangesMembersSpec:
    """Draw descriptions of modules that make some of ``changes``.

    Shrinks to a linear layer and the first change. Changes of submodules of a script module are
    drawn only with ``REGISTRATIONS``: the replicas of the reference do not list these submodules.
    """
    layers = [*LAST_LAYERS] if {*changes} & REGISTRATIONS.keys() else [*LAST_LAYERS][:-1]
    last = draw(st.sampled_from(layers))
    if last.startswith("script"):
        changes = [change for change in changes if change in _OF_SCRIPT_MODULES]
    return ChangesMembersSpec(
        draw(module_specs(kinds=PRECISE, dtypes=(torch.float32,), max_layers_per_level=2)),
        last,
        draw(st.integers(0, 5)),
        tuple(draw(st.lists(st.sampled_from(changes), min_size=1, max_size=3))),
    )


@st.composite
def changes_members_calls(draw: st.DrawFn, changes: Sequence[str]) -> DataParallelCall:
    """Draw calls of modules that make some of ``changes``. Shrinks like their module."""
    module: Any = draw(changes_members_specs(changes))
    rows = module.network.rows(draw(st.integers(1, 5)), requires_grad=True)
    return DataParallelCall(
        module,
        (rows,),
        devices=draw(device_lists(min_size=2)),
        functional=draw(FUNCTIONAL),
        grad=draw(st.booleans()),
    )
