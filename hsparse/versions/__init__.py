"""Versions of domains: snapshots, which are read like domains, and what is done with them."""

from hsparse.extension import Command, Extension
from hsparse.optional_module import OptionalModule

HELPS = {
    "snapshot": "keep domains as they are, and delete what was kept",
    "log": "list the snapshots of a domain",
    "diff": "tell what is different between snapshots",
    "restore": "bring a domain back to a snapshot",
    "clone": "make a domain that begins as another one, without copying",
}
EXTENSION = Extension(
    commands={name: Command("hsparse.versions.command", help=help) for name, help in HELPS.items()},
    service=OptionalModule("hsparse.versions.handlers"),
    store=OptionalModule("hsparse.versions.wrapping"),
    every_bucket=True,
    features=frozenset({"versions"}),
)
