"""Quotas: how many bytes the domains below a folder may take."""

from hsparse.extension import Command, Extension
from hsparse.optional_module import OptionalModule

QUOTA = Command("hsparse.quotas.command", help="show and set how much a folder may take")
EXTENSION = Extension(commands={"quota": QUOTA}, service=OptionalModule("hsparse.quotas.handlers"))
