"""Versions of domains: snapshots, which are read like domains."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(
    service=OptionalModule("hsparse.versions.handlers"),
    store=OptionalModule("hsparse.versions.wrapping"),
)
