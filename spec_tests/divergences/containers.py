"""Contents and metadata of containers, for comparison."""

from dataclasses import fields, is_dataclass
from typing import Any

from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import walk
from spec_tests.strategies.dataclass_batches import Batch
from spec_tests.strategies.tensors import TensorSpec


def metadata(mapping: Any) -> object:
    """Return the class, default factory and attributes of the mapping."""
    return type(mapping), getattr(mapping, "default_factory", None), attributes(mapping)


def attributes(value: object) -> dict[str, object]:
    """Return the attributes of ``value``; none if it has no ``__dict__``."""
    return dict(getattr(value, "__dict__", {}))


def build_tensors(value: Any, topology: Topology) -> Any:
    """Return ``value`` with its tensors built; set ``seen`` of a batch to its rows."""
    if isinstance(value, TensorSpec):
        return value.build(topology)
    if isinstance(value, list):
        return [build_tensors(member, topology) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    members = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    built = type(value)(
        **{name: build_tensors(member, topology) for name, member in members.items()}
    )
    if isinstance(built, Batch):
        built.seen = built.rows
    return built


def as_dicts(value: Any) -> Any:
    """Return ``value`` with dataclasses replaced by dictionaries."""
    if isinstance(value, list):
        return [as_dicts(member) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {field.name: as_dicts(getattr(value, field.name)) for field in fields(value)}


def leaf_classes(value: object) -> list[type]:
    """Return the classes of the walk of ``value``."""
    return [type(leaf) for _, leaf in walk(value, "")]
