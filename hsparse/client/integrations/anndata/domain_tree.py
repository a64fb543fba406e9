"""The objects of a domain with their attributes, asked for by one request, as AnnData's specification sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from hsparse.client.attributes import attribute_value
from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue, MissingKey
from hsparse.client.sparse_dataset import is_sparse
from hsparse.client.types.hdf5_type import shape_of

ENCODING_TYPE, ENCODING_VERSION = "encoding-type", "encoding-version"
OLD_MATRIX = "h5sparse_format"
"""The attribute of a matrix of AnnData before 0.7, csr or csc."""


class DomainTree:
    """Objects by their paths, without a slash in front: `obs/cell_type/codes`."""

    def __init__(self, connection: Connection, records: Mapping[str, Json], root: str = "") -> None:
        """Take what `Group.records` answers; the tree is what lies below the path `root`.

        The attribute `root` is empty, or that path with a slash behind.
        """
        below = f"{root.strip('/')}/" if root.strip("/") else ""
        self.connection = connection
        self.root = below
        self.name = f"{connection.domain}{'/' if below else ''}{below.rstrip('/')}"
        self.records: dict[str, Json] = {
            path.removeprefix(below): record for path, record in records.items() if path.startswith(below)
        }
        self._children: dict[str, list[str]] = defaultdict(list)
        for path in sorted(self.records):
            self._children[path.rpartition("/")[0]].append(path.rpartition("/")[2])

    def __contains__(self, path: str) -> bool:
        return path in self.records

    def record(self, path: str) -> Json:
        """Return the record of an object; `MissingKey` if there is none."""
        try:
            return self.records[path]
        except KeyError:
            raise MissingKey(f"{self.name} has no {path}.") from None

    def children(self, path: str) -> list[str]:
        """Return the names of the links of a group, sorted."""
        return self._children.get(path, [])

    def attribute(self, path: str, name: str) -> Any:
        """Return the value of an attribute; `MissingKey` if there is none."""
        attributes = self.record(path).get("attributes", {})
        if name not in attributes:
            raise MissingKey(f"{path} of {self.name} has no attribute {name}.")
        return attribute_value(attributes[name])

    def text(self, path: str, name: str) -> str:
        """Return an attribute that is text, empty if there is none."""
        if name not in self.record(path).get("attributes", {}):
            return ""
        return str(self.attribute(path, name))

    def encoding(self, path: str) -> str:
        """Return the encoding type of an element, empty if it has none, as before AnnData 0.7."""
        old = self.text(path, OLD_MATRIX)
        return self.text(path, ENCODING_TYPE) or (f"{old}_matrix" if old else "")

    def referred(self, path: str, name: str) -> str:
        """Return the path of the object that an attribute refers to; `MissingKey` if it is not in the tree."""
        id = str(self.attribute(path, name)).rpartition("/")[2]
        for found, record in self.records.items():
            if record["id"] == id:
                return found
        raise MissingKey(f"{path} of {self.name} refers to {id}, which is not there.")

    def is_dataset(self, path: str) -> bool:
        return str(self.record(path)["id"]).startswith("d-")

    def is_sparse(self, path: str) -> bool:
        return self.is_dataset(path) and is_sparse(self.record(path))

    def shape(self, path: str) -> tuple[int, ...]:
        """Return the shape of a dataset, or of a matrix that is a group."""
        if self.is_dataset(path):
            return shape_of(self.record(path)["shape"]) or ()
        attributes = self.record(path).get("attributes", {})
        name = "shape" if "shape" in attributes else "h5sparse_shape"
        return tuple(int(length) for length in self.attribute(path, name))

    @property
    def is_legacy(self) -> bool:
        """Whether the file is of AnnData before 0.7: obs or var is a dataset of compounds."""
        return any(name in self and self.is_dataset(name) for name in ("obs", "var"))

    def require_anndata(self) -> None:
        """Raise `InvalidValue` if there are no obs and var."""
        if "obs" not in self or "var" not in self:
            raise InvalidValue(
                f"{self.name} has no AnnData: there are {self.children('')}, and neither obs nor var."
                if self.children("")
                else f"{self.name} has no AnnData: it is empty."
            )

    def frame_length(self, path: str) -> int:
        """Return the number of rows of a data frame."""
        return self.shape(self.index_path(path))[0]

    def index_path(self, path: str) -> str:
        """Return the path of the dataset that has the index of a data frame; of a legacy one it has all columns."""
        return path if self.is_dataset(path) else f"{path}/{self.attribute(path, '_index')}"
