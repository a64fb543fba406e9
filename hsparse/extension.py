"""What an extension brings to a server and to the command line, and the table of all that are there.

An extension is a package with an `Extension` that is cheap to import: all else it names by modules, which are imported
when they are used. Packages of others are found by the entry point group `hsparse.extensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule

GROUP = "hsparse.extensions"
METADATA = OptionalModule("importlib.metadata")
BUILT_IN = ("hdf5", "versions", "explorer", "openid", "api_keys", "quotas", "telemetry", "stripes")
"""Packages of hsparse with an `EXTENSION`, in the order of their commands and policies."""


@dataclass(frozen=True, slots=True)
class Command(OptionalModule):
    """A command: its module has `add_arguments(parser, command)`, and the parsed arguments have `run`.

    `parts` are modules that the command loads by name: `args.load_part(name)`.
    """

    help: str = ""
    parts: Mapping[str, OptionalModule] = field(default_factory=dict)

    def load_part(self, name: str) -> Any:
        """Import the part of that name, like `load`."""
        return self.parts[name].load()


@dataclass(frozen=True, slots=True)
class Extension:
    """What can be added to hsparse without a change of it."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    service: OptionalModule | None = None
    """A module with `parts(settings, clock)`: the `hsparse.sn.app.Parts` of a service node."""
    store: OptionalModule | None = None
    """A module with `wrapped(settings, store, ownership)`: the two of a data node that serves more."""
    every_bucket: bool = False
    """Whether that is for all buckets of a data node, and not for the first one alone."""
    features: frozenset[str] = frozenset()
    """Features of a store that only this extension keeps: without it such a store is only read."""
    stores: OptionalModule | None = None
    """A module with `joined(stores)`: the stores of several buckets, each of which knows the others."""
    tracer: OptionalModule | None = None
    """A module with `node_tracer(service)`, a context: the `Tracer` of a process, None where none is set."""


@cache
def built_in() -> tuple[Extension, ...]:
    """Return the extensions of this package; the folder of one may be missing."""
    found: list[Extension] = []
    for module in (f"hsparse.{name}" for name in BUILT_IN):
        try:
            found.append(OptionalModule(module).load().EXTENSION)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    return tuple(found)


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all extensions, also those of other packages; `Misconfigured` names one that cannot be imported."""
    found = list(built_in())
    for point in METADATA.load().entry_points(group=GROUP):
        try:
            found.append(point.load())
        except (ImportError, AttributeError) as error:
            raise Misconfigured(
                f"The extension {point.value} cannot be imported: {error}. Update or uninstall its package."
            ) from error
    return tuple(found)
