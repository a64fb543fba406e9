"""Layouts of virtual datasets, whose elements are read from other datasets; the classes are as in h5py."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import Any, TypeAlias

from numpy.typing import ArrayLike, DTypeLike

from hsparse.client.creation import SPARSE, UNLIMITED, MaxShape, Shape, StorageOptions, shape_tuple
from hsparse.client.errors import InvalidValue
from hsparse.client.types.hdf5_type import Hdf5Type

Json = dict[str, Any]
Part: TypeAlias = int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]
Slab: TypeAlias = tuple[int, int, int | None]
"""The start, the step and the number of indices in a dimension; the number is None if the dimension is unlimited."""


class VirtualSource:
    """A dataset, or a part of a dataset, that a virtual dataset reads; `name` is its path in the domain `file`.

    `file` is an absolute path, a path relative to the domain of the virtual dataset, or "." for the same domain. If
    `file` or `name` has "%b", each block of the layout has its own source, whose name has the number of the block.

    >>> hsparse.VirtualSource("run.h5", "D", shape=(4, 3))[1:3].shape
    (2, 3)
    """

    def __init__(
        self, file: str, name: str, shape: Shape, maxshape: MaxShape = None, *, _slabs: Sequence[Slab] = ()
    ) -> None:
        self.file = file
        self.name = name
        self._extent = shape_tuple(shape)
        self.maxshape = maxshape
        self._slabs = tuple(_slabs) or tuple((0, 1, length) for length in self._extent)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the selected part; the length of an unlimited dimension is None.

        >>> hsparse.VirtualSource("run.h5", "D", (4, 3)).shape
        (4, 3)
        """
        return tuple(count for _, _, count in self._slabs)

    def __getitem__(self, key: Part) -> VirtualSource:
        """Return the part that integers and slices select; the stop "H5S_UNLIMITED" makes a slice unlimited.

        >>> hsparse.VirtualSource("run.h5", "D", (4, 3))[0:"H5S_UNLIMITED", 1].shape
        (None, 1)
        """
        return VirtualSource(
            self.file, self.name, self._extent, self.maxshape, _slabs=_slabs(key, self._extent)
        )

    @property
    def selection(self) -> Json:
        """The selected part as a hyperslab selection in the JSON of the REST API.

        >>> hsparse.VirtualSource("run.h5", "D", (4, 3))[:2].selection["count"]
        [2, 3]
        """
        return _selection(self._slabs)


class VirtualLayout:
    """The layout of a virtual dataset: assign sources to its parts, and pass the layout to `create_virtual_dataset`.

    A `sparse` layout needs sparse sources, and creates a sparse dataset. A later assignment covers earlier assignments.
    With `missing="fill"`, a missing source reads as the fill value; otherwise the read raises an error. Large reads are
    split into blocks of the shape `chunks`; for a sparse layout, use the chunk shape of the sources.

    >>> layout = hsparse.VirtualLayout((8, 3), "i8")
    >>> layout[0:4] = hsparse.VirtualSource(".", "D", (4, 3))
    >>> layout[4:8] = hsparse.VirtualSource("run.h5", "/D", (4, 3))
    >>> f.create_virtual_dataset("twice", layout)[5].tolist()
    [3, 4, 5]
    """

    def __init__(
        self,
        shape: Shape,
        dtype: DTypeLike = "f4",
        maxshape: MaxShape = None,
        *,
        sparse: bool = False,
        missing: str = "error",
        chunks: Shape | None = None,
    ) -> None:
        self.shape = shape_tuple(shape)
        self.dtype = dtype
        self.maxshape = maxshape
        self.sparse = sparse
        self.missing = missing
        self.chunks = chunks
        self.mappings: list[Json] = []

    def __setitem__(self, key: Part, source: VirtualSource) -> None:
        """Map a part of the virtual dataset to a source with the same number of elements.

        >>> layout = hsparse.VirtualLayout((0, 3), maxshape=(None, 3))
        >>> layout[0:"H5S_UNLIMITED"] = hsparse.VirtualSource(".", "D", (4, 3))[0:"H5S_UNLIMITED"]
        >>> f.create_virtual_dataset("all", layout).shape
        (4, 3)
        """
        slabs = _slabs(key, self.shape)
        counts = [[count for _, _, count in some] for some in (slabs, source._slabs)]
        endless = [None in some for some in counts]
        by_block = "%b" in (source.file + source.name).replace("%%", "")
        if not any(endless) and prod(filter(None, counts[0])) != prod(filter(None, counts[1])):
            raise InvalidValue(f"A part of shape {counts[0]} needs a source of its size, not {counts[1]}.")
        if endless[0] != endless[1] and not by_block:
            raise InvalidValue(
                "If a part or its source is unlimited, both must be, or the source's name must have %b."
            )
        virtual = _selection(slabs)
        if by_block and endless[0]:
            # Each block has its own source: along the unlimited dimension its length is that of a source.
            dim = counts[0].index(None)
            length = prod(c or 1 for c in counts[1]) // prod(c or 1 for c in counts[0])
            virtual["block"] = [1] * len(slabs)
            virtual["block"][dim], virtual["stride"][dim] = length, length * slabs[dim][1]
        self.mappings.append(
            {"file": source.file, "dataset": source.name, "virtual": virtual, "source": source.selection}
        )

    def body(self, fillvalue: ArrayLike | None) -> Json:
        """Return the request body of the REST API that creates the virtual dataset.

        >>> hsparse.VirtualLayout((2, 3)).body(None)["shape"]
        [2, 3]
        """
        layout: Json = {"class": "H5D_VIRTUAL", "mappings": self.mappings, "missing": self.missing}
        if self.sparse:
            layout["flags"] = SPARSE["flags"]
        if self.chunks is not None:
            layout["dims"] = list(shape_tuple(self.chunks))
        options = StorageOptions(maxshape=self.maxshape, fillvalue=fillvalue)
        body = options.body(Hdf5Type.of_dtype(self.dtype), self.shape)
        body["creationProperties"]["layout"] = layout
        return body


def _selection(slabs: Sequence[Slab]) -> Json:
    return {
        "class": "H5S_SEL_HYPERSLABS",
        "start": [start for start, _, _ in slabs],
        "stride": [step for _, step, _ in slabs],
        "count": [UNLIMITED if count is None else count for _, _, count in slabs],
    }


def _slabs(key: Any, shape: Sequence[int]) -> list[Slab]:
    """Return the slab of each dimension that integers and slices select; any other key raises `InvalidValue`."""
    items = list(key) if isinstance(key, tuple) else [key]
    if items.count(Ellipsis) > 1 or len(items) - items.count(Ellipsis) > len(shape):
        raise InvalidValue(f"The key {key!r} must have at most {len(shape)} items and one '...'.")
    if Ellipsis not in items:
        items.append(Ellipsis)
    at = items.index(Ellipsis)
    items[at : at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    return [_slab(item, length) for item, length in zip(items, shape, strict=True)]


def _slab(item: Any, length: int) -> Slab:
    if isinstance(item, slice) and item.stop == UNLIMITED:
        return item.start or 0, item.step or 1, None
    if isinstance(item, slice):
        found = range(*item.indices(length))
        if item.step is not None and item.step < 1:
            raise InvalidValue("A slice of a virtual dataset must have a positive step.")
        return found.start, found.step, len(found)
    try:
        number = operator.index(item)
    except TypeError:
        raise InvalidValue(f"{item!r} cannot select a part of a virtual dataset: use a slice.") from None
    if not -length <= number < length:
        raise InvalidValue(f"Index {number} is outside of a dimension of length {length}.")
    return number % length, 1, 1
