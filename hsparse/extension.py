"""Extensions of the server and the command line: what an extension can add, and the list of installed extensions.

An extension is a package with an `Extension`, which is cheap to import because it only names modules; a module is
imported at its first use. Extensions of other packages are found by the entry point group `hsparse.extensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule

API_VERSION = 1
"""The version of `hsparse.api`; the version increases when a name of the module is removed or changes its meaning."""
GROUP = "hsparse.extensions"
METADATA = OptionalModule("importlib.metadata")
BUILT_IN = ("hdf5", "versions", "explorer", "openid", "api_keys", "quotas", "telemetry", "stripes")
"""Packages of hsparse that have an `EXTENSION`; this is also the order of their commands and policies."""


@dataclass(frozen=True, slots=True)
class Command(OptionalModule):
    """A command. Its module has a function `add_arguments(parser, command)`, which sets `run` in the parsed arguments.

    `parts` maps names to modules; the command imports a module of `parts` by `args.load_part(name)`.
    """

    help: str = ""
    parts: Mapping[str, OptionalModule] = field(default_factory=dict)

    def load_part(self, name: str) -> Any:
        """Import and return the module that `parts` maps `name` to."""
        return self.parts[name].load()


@dataclass(frozen=True, slots=True)
class Extension:
    """The additions of one extension to hsparse."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    service: OptionalModule | None = None
    """A module whose `parts(settings, clock)` returns the `hsparse.sn.app.Parts` to add to a service node."""
    store: OptionalModule | None = None
    """A module whose `wrapped(settings, store, ownership)` returns the store and ownership that a data node uses.

    Unless `every_bucket` is set, the module also has `check(settings, store)`, a coroutine function that is awaited
    before `wrapped` is called and that raises an error if the extension cannot work.
    """
    every_bucket: bool = False
    """Whether `wrapped` is called for all buckets of a data node instead of the first one only."""
    features: frozenset[str] = frozenset()
    """Store features that only this extension maintains; without this extension, a store with one is read-only."""
    stores: OptionalModule | None = None
    """A module whose `joined(stores)` returns the stores of several buckets; each returned store can reach the rest."""
    settings: OptionalModule | None = None
    """A module whose `SECTION` is a frozen dataclass of settings, declared as `hsparse.setting` describes."""
    tracer: OptionalModule | None = None
    """A module with a context manager `node_tracer(service)`, which yields a `Tracer` or, if tracing is off, None."""
    api: int = 1
    """The `API_VERSION` that the extension was written for."""


@cache
def built_in() -> tuple[Extension, ...]:
    """Return the extensions of the packages in `BUILT_IN` that are installed."""
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
    """Return the extensions of hsparse and of other packages; raise `Misconfigured` for an unusable extension."""
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
                f"The extension {point.value} needs version {one.api} of hsparse.api, but this hsparse has version "
                f"{API_VERSION}: install a version of the extension that fits this hsparse."
            )
        found.append(one)
    return tuple(found)


@cache
def extension_sections() -> tuple[type, ...]:
    """Return the class of the settings of each extension that has settings."""
    return tuple(one.settings.load().SECTION for one in extensions() if one.settings is not None)
