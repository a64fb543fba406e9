"""How a setting is declared: once, as a field of the frozen dataclass of the part that uses it.

A section is such a dataclass: `StoreSettings`, `DataSettings`, `ServiceSettings`, and those of the process in
`hsparse.config`. A field declared by `setting` has a flag, a variable, a help text and checked bounds, all made
from its declaration; a field with a plain default is not configurable from outside.

Tests: tests/test_config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declared setting. Bounds are inclusive; None is no bound.

    `commands` are the commands with a flag for it; None is all commands that take its section.
    """

    name: str
    annotation: Any
    default: Any
    description: str
    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    commands: tuple[str, ...] | None = None

    @property
    def env_var(self) -> str:
        """The environment variable."""
        return f"HSPARSE_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return f"--{self.name.replace('_', '-')}"


def setting(
    default: T,
    description: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    min_length: int | None = None,
    commands: tuple[str, ...] | None = None,
) -> T:
    """Declare the field of a section as a setting; see `Declaration`. The description begins in lower case."""
    declared = {
        "description": description,
        "ge": ge,
        "le": le,
        "min_length": min_length,
        "commands": commands,
    }
    return field(default=default, metadata=declared)


def declared_settings(section: type) -> dict[str, Declaration]:
    """Return the settings declared in a section, by name, in the order of its fields."""
    annotations = get_type_hints(section)
    return {
        one.name: Declaration(one.name, annotations[one.name], one.default, **one.metadata)
        for one in fields(section)
        if one.metadata
    }
