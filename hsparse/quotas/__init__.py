"""Quotas: limits on the bytes that the domains below a folder take in the store."""

from hsparse.extension import Command, Extension
from hsparse.optional_module import OptionalModule

QUOTA = Command("hsparse.quotas.command", help="show and set the quota of a folder")
EXTENSION = Extension(commands={"quota": QUOTA}, service=OptionalModule("hsparse.quotas.handlers"))
