"""Layouts of virtual datasets, as in h5py: `VirtualLayout` and `VirtualSource`."""

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
"""Start, step and number of indices in a dimension; the number is None if unlimited."""


class VirtualSource:
    """A dataset at a path of a domain, or a part of it, as a source of a virtual dataset.

    `file` names the domain as an external link does: absolute, relative to the virtual dataset's domain, or "." for the
    same domain. With "%b" in a name, each block of the layout has its own source.

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
        """The shape of the part, with None for an unlimited dimension.

        >>> hsparse.VirtualSource("run.h5", "D", (4, 3)).shape
        (4, 3)
        """
        return tuple(count for _, _, count in self._slabs)

    def __getitem__(self, key: Part) -> VirtualSource:
        """Return a part, selected by integers and slices; the stop "H5S_UNLIMITED" makes a slice unlimited.

        >>> hsparse.VirtualSource("run.h5", "D", (4, 3))[0:"H5S_UNLIMITED", 1].shape
        (None, 1)
        """
        return VirtualSource(
            self.file, self.name, self._extent, self.maxshape, _slabs=_slabs(key, self._extent)
        )

    @property
    def selection(self) -> Json:
        """The part as a hyperslab selection of the REST API.

        >>> hsparse.VirtualSource("run.h5", "D", (4, 3))[:2].selection["count"]
        [2, 3]
        """
        return _selection(self._slabs)


class VirtualLayout:
    """The layout of a virtual dataset: assign sources to its parts, and pass it to `create_virtual_dataset`.

    A `sparse` layout needs sparse sources, and gives a sparse dataset. Later assignments cover earlier ones. With
    `missing="fill"` a missing source reads as the fill value; otherwise it is an error. `chunks` is the shape of the
    blocks that large reads are split into, for a sparse layout best the chunk shape of its sources.

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
        """Map a part of the dataset to a source with the same number of elements.

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
            raise InvalidValue(f"A part of shape {counts[0]} is mapped to a source of shape {counts[1]}.")
        if endless[0] != endless[1] and not by_block:
            raise InvalidValue(
                "An unlimited part needs an unlimited source, or a source name with %b for each block."
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
        """Return the body that creates the dataset with the REST API.

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
    """Return the slabs that integers and slices select; raise `InvalidValue` for other keys."""
    items = list(key) if isinstance(key, tuple) else [key]
    if items.count(Ellipsis) > 1 or len(items) - items.count(Ellipsis) > len(shape):
        raise InvalidValue(f"The key {key!r} has more parts than the shape {list(shape)}.")
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
            raise InvalidValue("The slices of a virtual dataset must have positive steps.")
        return found.start, found.step, len(found)
    try:
        number = operator.index(item)
    except TypeError:
        raise InvalidValue(f"Integers and slices select parts of a virtual dataset, not {item!r}.") from None
    if not -length <= number < length:
        raise InvalidValue(f"{number} is not in a dimension of length {length}.")
    return number % length, 1, 1
