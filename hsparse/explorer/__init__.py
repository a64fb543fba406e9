"""The explorer: a page for browsers, served from files in the package."""

from hsparse.api import Extension, OptionalModule

EXTENSION = Extension(service=OptionalModule("hsparse.explorer.handlers"))
