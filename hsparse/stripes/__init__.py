"""Stripes: the chunks of one dataset spread over several buckets or directories of a server."""

from hsparse.api import Extension, OptionalModule

EXTENSION = Extension(stores=OptionalModule("hsparse.stripes.joining"))
