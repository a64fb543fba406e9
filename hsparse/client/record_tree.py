"""A tree of records as text to print."""

from __future__ import annotations

from collections.abc import Mapping

from hsparse.client.connection import Json
from hsparse.client.sparse_dataset import is_sparse
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import HsparseError


def tree_text(name: str, records: Mapping[str, Json]) -> str:
    """Return the objects below `name`, by path, a line each: groups, and datasets with shape and dtype."""
    lines = [name]
    for path, record in sorted(records.items(), key=lambda one: one[0].split("/")):
        above, _, title = path.rpartition("/")
        indent = "  " * (above.count("/") + bool(above) + 1)
        lines.append(f"{indent}{title}{_description(record)}")
    return "\n".join(lines)


def _description(record: Json) -> str:
    if record["id"][0] != "d":
        return "/" if record["id"][0] == "g" else "  a type"
    try:
        dtype = str(Hdf5Type.parse(record["type"]).dtype)
    except HsparseError:  # numpy has no form for it
        dtype = "of a type that only h5pyd reads"
    kind = ", sparse" if is_sparse(record) else ""
    shape = shape_of(record["shape"])
    return f"  {'null' if shape is None else shape} {dtype}{kind}"
