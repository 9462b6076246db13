"""Functions that build containers, and functions that return properties of containers."""

from dataclasses import fields, is_dataclass
from typing import Any

from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import walk
from spec_tests.strategies.stateful_containers import Batch
from spec_tests.strategies.tensors import TensorSpec


def get_metadata(mapping: Any) -> object:
    """Return the class, the default factory and the attributes of ``mapping``."""
    return type(mapping), getattr(mapping, "default_factory", None), get_attributes(mapping)


def get_attributes(value: object) -> dict[str, object]:
    """Return the attributes of ``value``; an empty dict if ``value`` has no ``__dict__``."""
    return dict(getattr(value, "__dict__", {}))


def build_tensors(value: Any, topology: Topology) -> Any:
    """Return ``value`` with a tensor for each TensorSpec. ``seen`` of a Batch becomes its rows."""
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
    """Return ``value`` with each dataclass replaced by a dict of its fields."""
    if isinstance(value, list):
        return [as_dicts(member) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    names = [field.name for field in fields(value) if hasattr(value, field.name)]
    return {name: as_dicts(getattr(value, name)) for name in names}


def get_member_classes(value: object) -> list[type]:
    """Return the classes of ``value`` and of all its nested members."""
    return [type(member) for _, member in walk(value, "")]
