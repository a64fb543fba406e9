"""How a setting is declared: once, as a field of the frozen dataclass of the part that uses it.

A section is such a dataclass: `StoreSettings`, `DataSettings`, `ServiceSettings`, and those in `hsparse.sections`. A
field declared by `setting` has a flag, a variable, a help text and checked bounds, all made from its declaration; a
field with a plain default is not configurable from outside. `GROUP` of a section is the title of its flags in a help.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")

MIB = 1024 * 1024
PREFIX = "HSPARSE_"
"""What the variables of all settings begin with."""
UNITS: dict[str, int] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
SIZE = re.compile(r"(\d+(?:_\d+)*)(\.\d+)?\s*([a-z]*)", re.ASCII | re.IGNORECASE)
MAX_DIGITS = 18
"""The most digits of a size."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declared setting. Bounds are inclusive; None is no bound.

    `commands` are the commands with a flag for it; None is all commands that take its section. `is_size`: a number of
    bytes, which may be given with a unit.
    """

    name: str
    annotation: Any
    default: Any
    description: str
    group: str
    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    commands: tuple[str, ...] | None = None
    is_size: bool = False

    @property
    def env_var(self) -> str:
        """The environment variable."""
        return f"{PREFIX}{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def default_text(self) -> str:
        """The default as it would be given, empty for none."""
        if isinstance(self.default, tuple):
            return ",".join(self.default)
        if isinstance(self.default, bool):
            return "on" if self.default else ""
        return format_size(self.default) if self.is_size and self.default else str(self.default or "")


def setting(
    default: T,
    description: str,
    *,
    group: str | None = None,
    ge: float | None = None,
    le: float | None = None,
    min_length: int | None = None,
    commands: tuple[str, ...] | None = None,
    is_size: bool = False,
    secret: bool = False,
) -> T:
    """Declare the field of a section as a setting; see `Declaration`. The description begins in lower case.

    Without `group` it is in that of its section. A `secret` is not in the section's `repr`.
    """
    declared = {
        "description": description,
        "group": group,
        "ge": ge,
        "le": le,
        "min_length": min_length,
        "commands": commands,
        "is_size": is_size,
    }
    return field(default=default, repr=not secret, metadata=declared)


def declared_settings(section: type) -> dict[str, Declaration]:
    """Return the settings declared in a section, by name, in the order of its fields."""
    annotations = get_type_hints(section)
    group = getattr(section, "GROUP", "Settings")
    return {
        one.name: Declaration(
            one.name,
            annotations[one.name],
            one.default,
            **{**one.metadata, "group": one.metadata["group"] or group},
        )
        for one in fields(section)
        if one.metadata
    }


def parse_size(text: str) -> int:
    """Return a number of bytes: `1000000`, `1_000_000`, `512MiB`, `1.5 GB`; `ValueError` says what is wrong.

    kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no size; write it as 1000000, 512MiB or 1GB")
    whole, fraction, unit = match.groups()
    factor: int | None = UNITS.get(unit.lower() or "b")
    if factor is None:
        raise ValueError(f"{unit[:10]!r} is no unit of size; write kB, MB, GB, TB, or KiB, MiB, GiB, TiB")
    digits = whole.replace("_", "")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a size has at most {MAX_DIGITS} digits")
    nbytes = int(digits) * factor
    if fraction:
        nbytes += round(float(fraction) * factor)
        if factor == 1:
            raise ValueError(f"{text!r} is not a whole number of bytes")
    return nbytes


def format_size(nbytes: int) -> str:
    """Return a number of bytes in the largest unit of 1024 that leaves it whole, as `parse_size` takes it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = UNITS[unit.lower()]
        if nbytes and nbytes % factor == 0:
            return f"{nbytes // factor}{unit}"
    return str(nbytes)


def misspelling(names: list[str], known: list[str]) -> str | None:
    """Return a sentence about the first of `names` that begins like a setting's variable and is none, or None."""
    for name in sorted(names):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            nearest = get_close_matches(name.upper(), known, 1)
            remedy = f"do you mean {nearest[0]}?" if nearest else "no setting has a similar name; unset it."
            return f"There is no variable {name}: {remedy}"
    return None
