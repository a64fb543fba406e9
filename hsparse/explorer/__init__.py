"""The explorer: a page for browsers, served from files in the package."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(service=OptionalModule("hsparse.explorer.handlers"))
