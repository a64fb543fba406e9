"""Quotas: limits on the bytes that the domains below a folder take in the store."""

from hsparse.api import Command, Extension, OptionalModule

QUOTA = Command("hsparse.quotas.command", help="show and set the quota of a folder")
EXTENSION = Extension(
    commands={"quota": QUOTA},
    service=OptionalModule("hsparse.quotas.handlers"),
    settings=OptionalModule("hsparse.quotas.settings"),
)
