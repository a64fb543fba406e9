"""A dataset as value requests need it, made from its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hsparse.errors import BadRequest
from hsparse.format.plan.grid import Grid
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.layout import chunk_spec
from hsparse.model.linked_layout import is_linked
from hsparse.model.variable_array import VariableArray
from hsparse.sn.linked.file_rights import FileRights
from hsparse.wire.message import Record


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset with a simple or scalar dataspace: `extent` is `()` for a scalar one."""

    id: str
    record: Record
    extent: tuple[int, ...]
    spec: ChunkSpec
    grid: Grid
    dtype: np.dtype[Any]
    fill: Any
    """The fill value, an array of no dimensions: `VariableArray` of a variable-length type."""
    rights: FileRights | None = None

    @classmethod
    def of(cls, record: Record, rights: FileRights | None = None) -> Dataset:
        """Make it from a stored record; `BadRequest` for a null dataspace.

        `rights` are the reader's to files that the data may be in.
        """
        shape = record["shape"]
        if shape["class"] == "H5S_NULL":
            raise BadRequest(f"{record['id']} has a null dataspace: it has no values.")
        spec = chunk_spec(record)
        datatype = spec.datatype
        fill = spec.variable_fill if datatype.is_variable else spec.fill_value
        extent = tuple(shape.get("dims") or ())
        grid = Grid(extent, spec.dims)
        return cls(record["id"], record, extent, spec, grid, datatype.stored, fill, rights)

    @property
    def is_variable(self) -> bool:
        """Say whether elements have no fixed size."""
        return isinstance(self.fill, VariableArray)

    def require_sparse(self) -> None:
        """Raise `BadRequest` when the dataset is dense."""
        if not self.spec.sparse:
            raise BadRequest(f"{self.id} is not sparse: all its elements are always defined.")

    def require_own(self) -> None:
        """Raise `BadRequest` when the data stays in a file, where nothing is ever written."""
        if is_linked(self.record):
            raise BadRequest(f"{self.id} cannot be written: its data stays in a file that it is linked to.")
