"""Extensions of the server and the command line: what an extension can add, and the list of installed extensions.

An extension is a package with an `Extension` that is cheap to import: it names modules, which are imported at their
first use. Extensions of other packages are found by the entry point group `hsparse.extensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule

API_VERSION = 1
"""The version of the names in `hsparse.api`, raised when one of them changes its meaning or is removed."""
GROUP = "hsparse.extensions"
METADATA = OptionalModule("importlib.metadata")
BUILT_IN = ("hdf5", "versions", "explorer", "openid", "api_keys", "quotas", "telemetry", "stripes")
"""Packages of hsparse with an `EXTENSION`; their commands and policies are in this order."""


@dataclass(frozen=True, slots=True)
class Command(OptionalModule):
    """A command; its module has `add_arguments(parser, command)`, which sets `run` in the parsed arguments.

    `parts` are modules that the command loads by name, by `args.load_part(name)`.
    """

    help: str = ""
    parts: Mapping[str, OptionalModule] = field(default_factory=dict)

    def load_part(self, name: str) -> Any:
        """Import the part `name` as `load` does."""
        return self.parts[name].load()


@dataclass(frozen=True, slots=True)
class Extension:
    """The additions of one extension to hsparse."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    service: OptionalModule | None = None
    """A module whose `parts(settings, clock)` returns the `hsparse.sn.app.Parts` that a service node adds."""
    store: OptionalModule | None = None
    """A module whose `wrapped(settings, store, ownership)` returns the store and ownership that a data node uses.

    Unless `every_bucket` is set, the module also has `check(settings, store)`, awaited first, which raises an error if
    the extension cannot work.
    """
    every_bucket: bool = False
    """Whether `wrapped` is called for all buckets of a data node instead of the first one only."""
    features: frozenset[str] = frozenset()
    """Store features that only this extension maintains; without it, a store with such a feature is read-only."""
    stores: OptionalModule | None = None
    """A module whose `joined(stores)` returns the stores of several buckets, each able to reach the others."""
    settings: OptionalModule | None = None
    """A module whose `SECTION` is a frozen dataclass of settings, declared as `hsparse.setting` describes."""
    tracer: OptionalModule | None = None
    """A module whose context manager `node_tracer(service)` yields the `Tracer` of a process, or None."""
    api: int = 1
    """The `API_VERSION` that the extension was written for."""


@cache
def built_in() -> tuple[Extension, ...]:
    """Return the extensions in `BUILT_IN`, without those whose folder is missing."""
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
    """Return all extensions, including other packages'; raise `Misconfigured` if one cannot be imported or used."""
    found = list(built_in())
    for point in METADATA.load().entry_points(group=GROUP):
        try:
            one: Extension = point.load()
        except (ImportError, AttributeError) as error:
            raise Misconfigured(
                f"The extension {point.value} cannot be imported: {error}. Update or uninstall its package."
            ) from error
        if one.api != API_VERSION:
            raise Misconfigured(
                f"The extension {point.value} is for version {one.api} of hsparse.api, and this is {API_VERSION}: "
                "install a version that fits."
            )
        found.append(one)
    return tuple(found)


@cache
def extension_sections() -> tuple[type, ...]:
    """Return the classes of the extensions' settings."""
    return tuple(one.settings.load().SECTION for one in extensions() if one.settings is not None)
