"""Reductions that the client computes block by block, for servers that do not compute reductions.

    found = BlockReduction(dataset, selection, ("mean", "var"), axes=(0,)).run()

The client runs the code of the server, so the results are equal: sums of integers are exact, and sums of floats are
compensated between blocks. `read_groups` reads the labels by which a reduction groups its first axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue
from hsparse.client.memory_limit import check_size, element_bytes
from hsparse.client.sources.elements import ValueSource
from hsparse.client.sources.selection_request import count_defined, read_values
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import NotFound
from hsparse.format.reductions.finished import add_missing, finished, needed_columns
from hsparse.format.reductions.label_groups import LabelGroups, check_labels
from hsparse.format.reductions.partials import Partials, reduce_array, reduce_positions
from hsparse.format.reductions.reduction import OPERATIONS, Codes, Reduction, check_numbers
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.extent import strides
from hsparse.format.selections.points import Orthogonal

CODES, CATEGORIES = "codes", "categories"


def read_groups(connection: Connection, by: Any, length: int) -> LabelGroups:
    """Return the groups that the labels `by` give an axis of `length` indices; each index must have one label.

    `by` is a list of labels, or the path or id of a 1-D dataset or categorical column of labels.
    """
    if not isinstance(by, str):
        listed = np.asarray(by, object).tolist()
        check_labels(len(listed), length)
        return LabelGroups.of_list(listed)
    record = _record(connection, by)
    if not record["id"].startswith("g-"):
        values = _values(connection, record, length)
        return LabelGroups.of_list(values) if isinstance(values, list) else LabelGroups.of_numbers(values)
    try:
        codes, categories = [_record(connection, f"{by.rstrip('/')}/{one}") for one in (CODES, CATEGORIES)]
    except NotFound as error:
        raise InvalidValue(
            f"{by} is a group without the datasets {CODES} and {CATEGORIES}: name a dataset, or a categorical column "
            "of AnnData, in the argument by."
        ) from error
    labels = _values(connection, categories, None)
    return LabelGroups.of_categories(_values(connection, codes, length), labels, codes["id"])


def _record(connection: Connection, by: str) -> Json:
    if by.startswith("d-"):
        return connection.json("GET", f"/datasets/{by}")
    return connection.json("GET", "/", h5path=by, follow_soft_links=1)


def _values(connection: Connection, record: Json, length: int | None) -> NDArray[Any] | list[Any]:
    """Return the values of a 1-D dataset: an array if the values are numbers, or a list if the values are texts."""
    kind, extent = Hdf5Type.parse(record["type"]), shape_of(record["shape"]) or ()
    if len(extent) != 1:
        raise InvalidValue(f"{record['id']} has {len(extent)} dimensions: labels must be in a 1-D dataset.")
    if length is not None:
        check_labels(extent[0], length)
    check_size(extent[0] * element_bytes(kind.dtype), connection.max_bytes, extent)
    values = kind.decode(read_values(connection, record["id"], Orthogonal.all(extent)), extent)
    if values.dtype.kind == "S":
        return [one.decode(errors="surrogateescape") for one in values.tolist()]
    if values.dtype.kind in "biuf":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    return list(values.tolist())


BLOCK_BYTES = 32 << 20
"""The target size in bytes of a block, if the defined elements are spread evenly; memory holds two blocks at a time."""
UNEVEN_FACTOR = 2
"""The size of a block, as a multiple of `BLOCK_BYTES`, to which a block with too many elements is split."""
STATE_BYTES = 64
"""An upper bound for the bytes that the computation needs for each element of the result."""


class BlockSource(Protocol):
    """The attributes of a dataset that a reduction uses."""

    connection: Connection
    id: str
    max_bytes: int

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def chunks(self) -> tuple[int, ...] | None: ...
    @property
    def fillvalue(self) -> Any: ...
    @property
    def source(self) -> ValueSource: ...
    @property
    def has_undefined(self) -> bool:
        """Whether elements may be undefined; False if the dataset is dense."""
        ...


class BlockReduction:
    """A reduction of a selection over `axes`; with `by`, the first of `axes` is grouped by these labels.

    With `fills`, undefined elements count as the fill value. `field` names the field of compound elements. Raises
    `BadRequest` for unsupported operations of the element type, `TooLarge`, or `NotFound` for missing labels.
    """

    def __init__(
        self,
        dataset: BlockSource,
        selection: Orthogonal,
        operations: Sequence[str],
        axes: Sequence[int],
        *,
        by: Any = None,
        field: str = "",
        fills: bool = True,
        ddof: int = 0,
    ) -> None:
        unknown = [name for name in operations if name not in OPERATIONS]
        if unknown or not operations:
            raise InvalidValue(f"There are no operations {unknown}: give some of {', '.join(OPERATIONS)}.")
        check_numbers(dataset.dtype, field, operations)
        self._dataset = dataset
        self._selection = selection
        self._operations = operations
        self._fills = fills or not dataset.has_undefined
        self._ddof = ddof
        self._codes: Codes | None = None
        self.labels: list[Any] | None = None
        """The labels of the groups, or None if the reduction has no groups."""
        if by is not None:
            found = read_groups(dataset.connection, by, selection.extent[axes[0]])
            self._codes = found.codes[ax.indices(selection.axes[axes[0]]).astype(np.intp)]
            self.labels = found.labels
        self._reduction = Reduction(
            selection.shape,
            tuple(sorted(axes)),
            needed_columns(operations),
            field,
            -1 if by is None else axes[0],
            len(self.labels or ()),
        )

    def run(self) -> dict[str, NDArray[Any]]:
        """Compute the reduction; return a dict that maps the name of each operation to its result."""
        reduction, fill = self._reduction, self._fill()
        shape, number = reduction.result_shape, reduction.numbers(fill)
        check_size(reduction.places * STATE_BYTES, self._dataset.max_bytes, shape)
        state = Partials.empty(reduction.places, number.dtype, reduction.columns)
        if self._dataset.has_undefined or reduction.columns:  # otherwise elements are only counted
            for part in prefetched(self._reduced, self._blocks()):
                state.merge(part)
        if self._fills:
            add_missing(state, reduction, fill, self._codes)
        return {name: finished(name, state, number, self._ddof).reshape(shape) for name in self._operations}

    def _fill(self) -> NDArray[Any]:
        """Return the fill value in native byte order, or 0 if the elements are vlen, because these are only counted."""
        dtype = self._dataset.dtype
        if dtype.kind == "O":
            return np.zeros((), "u1")
        return np.array(self._dataset.fillvalue, dtype.newbyteorder("="))

    def _blocks(self) -> Iterator[Block]:
        dtype, selection = self._dataset.dtype, self._selection
        if not selection.size:
            return iter(())
        whole = Block(selection.axes, (0,) * len(selection.axes))
        chunks = self._dataset.chunks or selection.extent
        if not self._dataset.has_undefined:
            return whole.divided(chunks, max(1, BLOCK_BYTES // dtype.itemsize))
        return self._sparse_blocks(whole, chunks, dtype.itemsize + 8 * len(selection.extent))

    def _sparse_blocks(self, whole: Block, chunks: Sequence[int], each: int) -> Iterator[Block]:
        """Yield blocks with about `BLOCK_BYTES` of defined elements, of `each` bytes including their coordinates.

        If a block could exceed the dataset's `max_bytes`, the defined elements in the block are counted to split it.
        """

        def most(block: Block) -> int:
            selection = Orthogonal.trusted(self._selection.extent, block.axes)
            count = count_defined(self._dataset.connection, self._dataset.id, selection)
            return max(1, BLOCK_BYTES * block.size // (each * max(1, count)))

        for block in whole.divided(chunks, most(whole)):
            if block.size * each <= self._dataset.max_bytes:
                yield block
            else:
                yield from block.divided(chunks, UNEVEN_FACTOR * most(block))

    def _reduced(self, block: Block) -> Partials:
        """Return the partial results of a block, such as its sums, at their positions in the whole result."""
        selection = Orthogonal.trusted(self._selection.extent, block.axes)
        codes, grouped = self._codes, self._reduction.grouped
        if codes is not None:
            first = block.origin[grouped]
            codes = codes[first : first + selection.shape[grouped]]
        if self._dataset.has_undefined:
            found = self._reduced_elements(selection, codes)
        else:
            values = self._dataset.source.dense_values(selection)
            found = reduce_array(_native(values), self._reduction, codes)
        return found.placed(self._reduction, selection.shape, block.origin)

    def _reduced_elements(self, selection: Orthogonal, codes: Codes | None) -> Partials:
        found = self._dataset.source.defined_elements(selection)
        positions = np.zeros(len(found), np.uint64)
        for axis, column, stride in zip(selection.axes, found.columns, strides(selection.shape), strict=True):
            positions += ax.positions(axis, column.astype(np.uint64)).astype(np.uint64) * np.uint64(stride)
        return reduce_positions(positions, _native(found.values), selection.shape, self._reduction, codes)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block of a selection; `axes` select it from the dataset, `origin` is the position of its first element."""

    axes: tuple[ax.Axis, ...]
    origin: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(axis.size for axis in self.axes)

    def divided(self, chunks: Sequence[int], most: int) -> Iterator[Block]:
        """Split the block into blocks of at most `most` elements, between chunks unless a chunk has more elements."""
        if self.size <= most:
            yield self
            return
        dim, count = self._middle(chunks)
        for start, stop in ((0, count), (count, self.axes[dim].size)):
            axes, origin = list(self.axes), list(self.origin)
            axes[dim], origin[dim] = ax.take(axes[dim], start, stop), origin[dim] + start
            yield from Block(tuple(axes), tuple(origin)).divided(chunks, most)

    def _middle(self, chunks: Sequence[int]) -> tuple[int, int]:
        """Return a pair: the dimension to cut, and how many indices are before the cut, between chunks if possible."""
        for dim, (axis, chunk) in enumerate(zip(self.axes, chunks, strict=False)):
            low, high = ax.bounds(axis) or (0, 1)
            first, last = low // chunk, (high - 1) // chunk
            if first < last:
                return dim, ax.clip(axis, 0, (first + last + 1) // 2 * chunk).size
        sizes = [axis.size for axis in self.axes]
        return sizes.index(max(sizes)), max(sizes) // 2


def _native(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(values.dtype.newbyteorder("="), copy=False)
