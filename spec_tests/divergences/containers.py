"""What containers hold, however they are rebuilt."""

from dataclasses import fields, is_dataclass
from typing import Any

from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import leaves
from spec_tests.strategies.dataclass_batches import Batch
from spec_tests.strategies.tensors import TensorSpec


def beyond_members(mapping: Any) -> object:
    """What the mapping holds beside its members: class, default factory, attributes."""
    return type(mapping), getattr(mapping, "default_factory", None), vars_of(mapping)


def vars_of(value: object) -> dict[str, object]:
    """The attributes of ``value``; none where it has no dictionary."""
    return dict(getattr(value, "__dict__", {}))


def made(value: Any, topology: Topology) -> Any:
    """``value`` with its tensors built; a batch has seen its rows."""
    if isinstance(value, TensorSpec):
        return value.build(topology)
    if isinstance(value, list):
        return [made(member, topology) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    members = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    built = type(value)(**{name: made(member, topology) for name, member in members.items()})
    if isinstance(built, Batch):
        built.seen = built.rows
    return built


def plain(value: Any) -> Any:
    """``value`` with a dictionary for every dataclass."""
    if isinstance(value, list):
        return [plain(member) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)}


def classes(value: object) -> list[type]:
    """The classes of ``value`` and of everything in it."""
    return [type(leaf) for _, leaf in leaves(value, "")]
