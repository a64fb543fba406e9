"""A dataset as value requests need it, made from its record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hsparse.errors import BadRequest, Moved
from hsparse.format.grid import Grid
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.layout import chunk_spec
from hsparse.model.linked_layout import is_linked
from hsparse.model.objid import check_id, domain_hex
from hsparse.model.variable_array import VariableArray
from hsparse.sn.context import Context
from hsparse.sn.linked.file_rights import FileRights
from hsparse.wire.message import Record

T = TypeVar("T")

ATTEMPTS = 8
"""How often an operation is planned again before its `Moved` is passed on."""


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


async def load_dataset(context: Context) -> Dataset:
    """Load the dataset that the request's path names, in the request's domain."""
    id = check_id(context.request.match_info["id"], "datasets")
    root = context.domain.root
    if root is None or domain_hex(id) != domain_hex(root):
        raise BadRequest(f"{id} is not in the domain {context.domain.path}.")
    owners = context.service.owners
    rights = FileRights(owners, context.principal, context.service.settings.bucket)
    return Dataset.of(await owners.record(id), rights)


async def until_current(context: Context, work: Callable[[Dataset], Awaitable[T]]) -> T:
    """Return `work` of the dataset the path names, done again when its extent was shrunk meanwhile."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await work(await load_dataset(context))
        except Moved:
            continue
    return await work(await load_dataset(context))
