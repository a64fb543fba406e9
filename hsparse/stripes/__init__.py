"""Stripes in other buckets: the chunks of a dataset over several buckets or directories that one server has."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(stores=OptionalModule("hsparse.stripes.joining"))
