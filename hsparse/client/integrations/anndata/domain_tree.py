"""The objects of a domain with their attributes, read by one request, and their roles in AnnData's specification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from hsparse.client.attributes import attribute_value
from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue, MissingKey
from hsparse.client.integrations.anndata.element_encoder import CATEGORIES, has_cells
from hsparse.client.sparse_dataset import is_sparse
from hsparse.client.types.hdf5_type import shape_of
from hsparse.model.dataspace import is_extensible
from hsparse.model.layout import VIRTUAL

INDEX = "_index"
ENCODING_TYPE, ENCODING_VERSION = "encoding-type", "encoding-version"
OLD_MATRIX = "h5sparse_format"
"""The attribute with the form of a matrix, csr or csc, in files of AnnData before 0.7."""


class DomainTree:
    """The records of a domain's objects by path; paths have no leading slash, as in `obs/cell_type/codes`."""

    def __init__(self, connection: Connection, records: Mapping[str, Json], root: str = "") -> None:
        """Take the records that `Group.records` returns, and keep the records below the path `root`.

        The attribute `root` is this path with a trailing slash, or "" for the root group.
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
        self._leave_out_unfinished()

    def _leave_out_unfinished(self) -> None:
        """Shorten the records of datasets to the rows of obs's index, which every append extends last."""
        if INDEX not in self.records.get("obs", {}).get("attributes", {}):
            return
        index = self.index_path("obs")
        cells = self.shape(index)[0] if index in self else None
        for path, record in self.records.items() if cells is not None else ():
            dims = record.get("shape", {}).get("dims") if self._has_rows(path) else None
            if dims and dims[0] > cells and is_extensible(record["shape"]):
                shape = record["shape"] | {"dims": [cells, *dims[1:]]}
                self.records[path] = record | {"shape": shape}

    def _has_rows(self, path: str) -> bool:
        """Return whether a dataset at this path has a row for each cell."""
        above = path.rpartition("/")[0]
        kind = self.encoding(above) if above in self else ""
        in_parts = kind.endswith("_matrix") or kind == "awkward-array"
        return has_cells(path) and not in_parts and not path.endswith(CATEGORIES)

    def __contains__(self, path: str) -> bool:
        return path in self.records

    def record(self, path: str) -> Json:
        """Return the record of an object; raise `MissingKey` if there is none."""
        try:
            return self.records[path]
        except KeyError:
            raise MissingKey(f"{self.name} has no {path}.") from None

    def children(self, path: str) -> list[str]:
        """Return the names of the links of a group, sorted."""
        return self._children.get(path, [])

    def attribute(self, path: str, name: str) -> Any:
        """Return the value of an attribute; raise `MissingKey` if there is none."""
        attributes = self.record(path).get("attributes", {})
        if name not in attributes:
            raise MissingKey(f"{path} of {self.name} has no attribute {name}.")
        return attribute_value(attributes[name])

    def text(self, path: str, name: str) -> str:
        """Return an attribute as text, or "" if the attribute is missing."""
        if name not in self.record(path).get("attributes", {}):
            return ""
        return str(self.attribute(path, name))

    def encoding(self, path: str) -> str:
        """Return the encoding type of an element, or "" if it has none, which is common before AnnData 0.7."""
        old = self.text(path, OLD_MATRIX)
        return self.text(path, ENCODING_TYPE) or (f"{old}_matrix" if old else "")

    def referred(self, path: str, name: str) -> str:
        """Return the path of the object that an attribute references; raise `MissingKey` if it is not in the tree."""
        id = str(self.attribute(path, name)).rpartition("/")[2]
        for found, record in self.records.items():
            if record["id"] == id:
                return found
        raise MissingKey(f"{path} of {self.name} refers to {id}, which does not exist.")

    def is_dataset(self, path: str) -> bool:
        return str(self.record(path)["id"]).startswith("d-")

    def is_sparse(self, path: str) -> bool:
        return self.is_dataset(path) and is_sparse(self.record(path))

    def is_virtual(self, path: str) -> bool:
        """Return whether a dataset is virtual: its elements are stored in other datasets."""
        layout = self.record(path).get("creationProperties", {}).get("layout") or {}
        return bool(layout.get("class") == VIRTUAL)

    def shape(self, path: str) -> tuple[int, ...]:
        """Return the shape of a dataset, or of a matrix that is a group."""
        if self.is_dataset(path):
            return shape_of(self.record(path)["shape"]) or ()
        attributes = self.record(path).get("attributes", {})
        name = "shape" if "shape" in attributes else "h5sparse_shape"
        return tuple(int(length) for length in self.attribute(path, name))

    @property
    def is_legacy(self) -> bool:
        """Whether AnnData before 0.7 wrote the file: obs or var is a compound dataset."""
        return any(name in self and self.is_dataset(name) for name in ("obs", "var"))

    def require_anndata(self) -> None:
        """Raise `InvalidValue` if obs or var is missing."""
        if "obs" not in self or "var" not in self:
            raise InvalidValue(
                f"{self.name} has no AnnData, which needs obs and var: it has only {self.children('')}."
                if self.children("")
                else f"{self.name} has no AnnData: it is empty."
            )

    def frame_length(self, path: str) -> int:
        """Return the number of rows of a data frame."""
        index = self.index_path(path)
        return self.shape(index if self.is_dataset(index) else f"{index}/values")[0]

    def index_path(self, path: str) -> str:
        """Return the path of the dataset with a data frame's index; before AnnData 0.7 it is the frame itself."""
        return path if self.is_dataset(path) else f"{path}/{self.attribute(path, INDEX)}"
