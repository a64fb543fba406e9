"""Stripes: the chunks of one dataset spread over several buckets or directories of a server."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(stores=OptionalModule("hsparse.stripes.joining"))
