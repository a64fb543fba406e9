"""The page for browsers, from files that the package has."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(service=OptionalModule("hsparse.explorer.handlers"))
