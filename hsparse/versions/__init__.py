"""Versions of domains: snapshots, which are read like domains, and the commands that work with them."""

from hsparse.extension import Command, Extension
from hsparse.optional_module import OptionalModule

HELPS = {
    "snapshot": "take and delete snapshots of domains",
    "log": "list the snapshots of a domain",
    "diff": "list the differences between snapshots",
    "restore": "restore a domain to a snapshot",
    "clone": "create a domain that shares the data of another one until it changes",
}
EXTENSION = Extension(
    commands={name: Command("hsparse.versions.command", help=help) for name, help in HELPS.items()},
    service=OptionalModule("hsparse.versions.handlers"),
    store=OptionalModule("hsparse.versions.wrapping"),
    every_bucket=True,
    features=frozenset({"versions"}),
)
