"""Declaration of settings: a section is a frozen dataclass, and each setting is a field of a section.

Sections are `StoreSettings`, `DataSettings`, `ServiceSettings`, and the classes in `hsparse.sections`. A field declared
by `setting` gets a flag, a variable, a help text and checked bounds from its declaration. A field with a plain default
cannot be set by users. `GROUP` of a section is the title of its flags in the help; `COMMANDS` of a section are the
commands that have its flags (default: all commands that read the section).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar, get_type_hints

log = logging.getLogger(__name__)

T = TypeVar("T")

MIB = 1024 * 1024
PREFIX = "HSPARSE_"
"""Prefix of the environment variables of all settings."""
UNITS: dict[str, int] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
STRIPPED = (PREFIX, "HS_", "AWS_", "AZURE_", "GOOGLE_", "GCS_", "OTEL_")
"""Prefixes of the variables that name servers, buckets and secrets; variables of HSDS begin with `HS_`."""
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
SIZE = re.compile(r"(\d+(?:_\d+)*)(\.\d+)?\s*([a-z]*)", re.ASCII | re.IGNORECASE)
MAX_DIGITS = 18
"""Largest number of digits of a size."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declared setting. The bounds `ge` and `le` are inclusive; None means that there is no bound.

    `commands` are the commands that have the flag; None means all commands that read the section. With `is_size`, the
    value is a number of bytes, which users may write with a unit.
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
        """The default as a user would write the value, or an empty text if the setting has no default."""
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

    Without `group` the setting is in the group of its section. The `repr` of a section omits its secret settings.
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
    """Return a dict that maps the name of each setting of a section to its declaration, in the order of the fields."""
    annotations = get_type_hints(section)
    group, commands = getattr(section, "GROUP", "Settings"), getattr(section, "COMMANDS", None)
    return {
        one.name: Declaration(
            one.name,
            annotations[one.name],
            one.default,
            **{
                **one.metadata,
                "group": one.metadata["group"] or group,
                "commands": commands if one.metadata["commands"] is None else one.metadata["commands"],
            },
        )
        for one in fields(section)
        if one.metadata
    }


def parse_size(text: str) -> int:
    """Parse a number of bytes such as `1000000`, `1_000_000`, `512MiB` or `1.5 GB`; raise `ValueError` if malformed.

    kB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB are powers of 1024.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a size; write a size like 1000000, 512MiB or 1GB")
    whole, fraction, unit = match.groups()
    factor: int | None = UNITS.get(unit.lower() or "b")
    if factor is None:
        raise ValueError(f"{unit[:10]!r} is not a unit of size; write kB, MB, GB, TB, KiB, MiB, GiB or TiB")
    digits = whole.replace("_", "")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a size must have at most {MAX_DIGITS} digits; write it in a larger unit")
    nbytes = int(digits) * factor
    if fraction:
        nbytes += round(float(fraction) * factor)
        if factor == 1:
            raise ValueError(f"{text!r} is not a whole number of bytes; omit the fraction, or add a unit")
    return nbytes


def format_size(nbytes: int) -> str:
    """Return a text of a number of bytes that `parse_size` reads, in the largest unit that gives a whole number."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = UNITS[unit.lower()]
        if nbytes and nbytes % factor == 0:
            return f"{nbytes // factor}{unit}"
    return str(nbytes)


def strip_variables(environ: MutableMapping[str, str]) -> None:
    """Remove trailing line ends from the variables with the prefixes `STRIPPED`, and log a warning for each.

    `echo TOKEN | base64`, `--from-file` and editors add a line end to a value. All other variables stay unchanged.
    """
    for name, value in list(environ.items()):
        if name.upper().startswith(STRIPPED) and value != (bare := value.rstrip("\r\n")):
            environ[name] = bare
            log.warning("the value of the variable %s has a line end at its end, which is ignored", name)


def unprintable(environ: Mapping[str, str]) -> str | None:
    """Return a message if a variable with a prefix of `STRIPPED` has a control character, or None if none has one."""
    for name in sorted(environ):
        if name.upper().startswith(STRIPPED) and CONTROL.search(environ[name].rstrip("\r\n")):
            return f"The variable {name} contains a line end or a control character: set {name} to one line of text."
    return None


def misspelling(names: list[str], known: list[str]) -> str | None:
    """Return a message if one of `names` begins with `PREFIX` but is not in `known`, or None if there is none."""
    for name in sorted(names):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            nearest = get_close_matches(name.upper(), known, 1)
            remedy = f"do you mean {nearest[0]}?" if nearest else f"no setting has such a name; unset {name}."
            return f"There is no variable {name}: {remedy}"
    return None
