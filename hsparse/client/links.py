"""Classes of links as in h5py, their HDF5/JSON, and copies of datasets by the client.

The values of a copied dataset pass through this process in blocks, within a file and between files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from hsparse.client.connection import Json
from hsparse.client.dataset_creation import DatasetCreation
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.indexing.places import places_along
from hsparse.client.sparse_dataset import SparseDataset


def own_link(value: object) -> object:
    """Convert a soft or external link of h5py or h5pyd to the class of this module; return other values unchanged."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("h5py", "h5pyd"):
        if kind.__name__ == "SoftLink":
            return SoftLink(value.path)  # type: ignore[attr-defined]
        if kind.__name__ == "ExternalLink":
            return ExternalLink(value.filename, value.path)  # type: ignore[attr-defined]
    return value


@dataclass(frozen=True, slots=True)
class HardLink:
    """A link to an object instead of a path; `get(name, getlink=True)` returns it.

    >>> f.get("X", getlink=True)
    HardLink()
    """


@dataclass(frozen=True, slots=True)
class SoftLink:
    """A link to a path in the same domain; the path need not exist.

    >>> f["newest"] = hsparse.SoftLink("/X")
    >>> f["newest"].shape
    (4, 3)
    """

    path: str


@dataclass(frozen=True, slots=True)
class ExternalLink:
    """A link to a path in another domain; the domain and the path need not exist.

    >>> f["other"] = hsparse.ExternalLink("/home/admin/other.h5", "/X")
    >>> f.links()["other"]["class"]
    'H5L_TYPE_EXTERNAL'
    """

    domain: str
    path: str

    @property
    def filename(self) -> str:
        """The path of the domain; h5py's name for `domain`.

        >>> hsparse.ExternalLink("/home/admin/other.h5", "/X").filename
        '/home/admin/other.h5'
        """
        return self.domain


Link: TypeAlias = HardLink | SoftLink | ExternalLink


def link_of(record: Json) -> Link:
    """Return the link object for the JSON of a link in the server's answer."""
    if "h5domain" in record:
        return ExternalLink(record["h5domain"], record["h5path"])
    return SoftLink(record["h5path"]) if "h5path" in record else HardLink()


def link_body(record: Json) -> Json:
    """Return the request body that creates a link with the same target as the link of `record`."""
    return {name: record[name] for name in ("id", "h5path", "h5domain") if name in record}


BLOCK_BYTES = 32 << 20
"""The size of a copied block in bytes, if all of its elements are defined."""


def copy_dataset(
    source: DenseDataset | SparseDataset, target: DatasetCreation, path: str, attributes: Json
) -> None:
    """Copy a dataset to a path of a group; raise `AlreadyExists` if the path has an object."""
    record, _ = target.create_object("datasets", path, _body(source) | attributes)
    if source.is_null or not source.size:
        return
    if isinstance(source, SparseDataset):
        made = SparseDataset(target.connection, record)
        for rows in _blocks(source):
            coords, values = source.read((rows, ...))
            if len(values):
                made.write(coords, values)
        return
    copy = DenseDataset(target.connection, record)
    for rows in _blocks(source):
        key = (rows, ...) if source.shape else ...
        copy[key] = source[key]


def _body(source: DenseDataset | SparseDataset) -> Json:
    record, properties = source.record, source.record.get("creationProperties", {})
    layout = {"layout": record["layout"]} if "layout" in record else {}
    body: Json = {"type": record["type"], "creationProperties": layout | properties}
    if source.is_null:
        return body | {"shape": "H5S_NULL"}
    if not source.shape:
        return body
    extent = source.refresh()
    body |= {name: record["shape"][name] for name in ("maxdims", "minlower") if name in record["shape"]}
    return body | {"shape": list(extent)} | ({"lower": list(source.lower)} if "minlower" in body else {})


def _blocks(source: DenseDataset | SparseDataset) -> Iterator[slice]:
    """Yield slices of rows that together cover the dataset; each has whole chunks and about `BLOCK_BYTES` bytes."""
    if not source.shape:
        yield slice(None)
        return
    step = (source.chunks or (1,))[0]
    step *= max(1, BLOCK_BYTES // max(1, source.nbytes // source.shape[0] * step))
    rows = places_along(source.shape, 0)
    for first in range(rows.start, rows.stop, step):
        yield slice(first, min(first + step, rows.stop))
