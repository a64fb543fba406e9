"""Extents of datasets with a lower bound: how requests count places, and how plans, grids and chunks do.

Inside, coordinates are unsigned and begin at the first element of the chunk that has the lower bound, so that chunks
lie on their grid. Requests count in signed places, from an origin that they name or, those of stock clients, from 0 at
the lower bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, OutOfRange
from hsparse.format.selections.points import Points, Selection

INTEGER = re.compile(r"-?[0-9]{1,19}")


class SignedExtent(tuple[int, ...]):
    """The extent of a dataset with the lower bounds `lower`, in the coordinates of plans, as any other extent is.

    `first` is the lower bound in these coordinates. A request counts places if `in_places`, from `origin` on if it
    names one; else from 0 at the lower bound.
    """

    lower: tuple[int, ...]
    first: tuple[int, ...]
    in_places: bool
    origin: tuple[int, ...]

    @classmethod
    def of(
        cls,
        lengths: Sequence[int],
        lower: Sequence[int],
        first: Sequence[int],
        *,
        in_places: bool = False,
        origin: Sequence[int] = (),
    ) -> SignedExtent:
        """Return the extent of so many elements in each dimension from `lower` on, which is at `first` inside."""
        self = cls(map(int.__add__, first, lengths))
        self.lower, self.first, self.in_places = tuple(lower), tuple(first), in_places
        self.origin = tuple(origin)
        return self

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of elements in each dimension."""
        return tuple(map(int.__sub__, self, self.first))

    @property
    def start(self) -> tuple[int, ...]:
        """What a request calls the first element."""
        if self.origin:
            return tuple(map(int.__sub__, self.lower, self.origin))
        return self.lower if self.in_places else (0,) * len(self)

    @property
    def image_start(self) -> tuple[int, ...]:
        """What an encoded selection, which has no signs, calls the first element."""
        return self.start if self.origin else (0,) * len(self)

    @property
    def corner(self) -> tuple[int, ...]:
        """The place at the origin of the coordinates."""
        return tuple(map(int.__sub__, self.lower, self.first))

    def for_request(self, *, in_places: bool, origin: Sequence[int] = ()) -> SignedExtent:
        """Return the extent for a request that counts in places, or from 0; `BadRequest` for a wrong origin."""
        if len(origin) not in (0, len(self)):
            raise BadRequest(f"places has {len(origin)} numbers; the dataset has {len(self)} dimensions.")
        return self.of(self.lengths, self.lower, self.first, in_places=in_places, origin=origin)

    def inside(self, selection: Selection) -> Selection:
        """Return a selection that counts from the lower bound in the coordinates of plans."""
        return selection.translate(self.first, tuple(self))

    def outside(self, selection: Selection) -> Selection:
        """Return the reverse of `inside`."""
        return selection.translate([-first for first in self.first], self.lengths)

    def decoded(self, selection: Selection) -> Selection:
        """Return an encoded selection of a request in the coordinates of plans; `OutOfRange` outside the bounds."""
        for dim, (low, high) in enumerate(zip(*(selection.bounds() or ((), ())), strict=True)):
            self._check(low + self.start[dim] - self.image_start[dim], dim)
            self._check(high - 1 + self.start[dim] - self.image_start[dim], dim)
        moves = map(int.__sub__, self.first, self.image_start)
        return selection.translate(tuple(moves), tuple(self))

    def encodable(self, selection: Selection) -> Selection:
        """Return the reverse of `decoded`; `OutOfRange` for what lies below the origin of the request."""
        moves = tuple(map(int.__sub__, self.image_start, self.first))
        for low, move, origin in zip((selection.bounds() or ((), ()))[0], moves, self.origin, strict=False):
            if low + move < 0:
                raise OutOfRange(
                    f"There is an element at {low + move + origin}, below the place {origin} from which the request "
                    "counts: name what is read, or ask for Arrow."
                )
        stop = (max(0, move + length) for move, length in zip(moves, self, strict=True))
        return selection.translate(moves, tuple(stop))

    def points(self, coords: NDArray[Any]) -> Points:
        """Return the points at the coordinates of a request, (n, rank) integers; `OutOfRange` outside the bounds."""
        if coords.dtype.kind not in "iu" or coords.ndim != 2 or coords.shape[1] != len(self):
            return Points(tuple(self), coords)  # which says what is wrong
        for dim in range(len(self) if len(coords) else 0):
            self._check(int(coords[:, dim].min()), dim)
            self._check(int(coords[:, dim].max()), dim)
        moves = np.array(self.first, np.int64) - np.array(self.start, np.int64)
        return Points.trusted(tuple(self), (coords.astype(np.int64) + moves).astype(np.uint64))

    def places(self, coords: NDArray[Any]) -> NDArray[np.int64]:
        """Return coordinates of plans, (n, rank) or of one dimension (n,), as a request counts them."""
        moves = np.array(self.start, np.int64) - np.array(self.first, np.int64)
        return coords.astype(np.int64) + moves

    def columns(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[np.int64]]:
        """Return the same of a column for each dimension."""
        moves = map(int.__sub__, self.start, self.first)
        return [column.astype(np.int64) + move for column, move in zip(columns, moves, strict=True)]

    def unsigned(self, piece: str, dim: int) -> str:
        """Return an item of a `select` string, without blanks, as it counts from the lower bound.

        `OutOfRange` for a place outside the bounds. What is no item is returned as it is.
        """
        if not self.in_places:
            return piece
        if piece.startswith("[") and piece.endswith("]"):
            return f"[{','.join(self._moved(part, dim) for part in piece[1:-1].split(','))}]"
        bounds = piece.split(":")
        ends = len(bounds) > 1
        return ":".join([self._moved(part, dim, ends=ends) for part in bounds[:2]] + bounds[2:])

    def _moved(self, text: str, dim: int, *, ends: bool = False) -> str:
        if INTEGER.fullmatch(text) is None:
            return text
        self._check(int(text), dim, ends=ends)
        return str(int(text) - self.start[dim])

    def _check(self, place: int, dim: int, *, ends: bool = False) -> None:
        """Raise `OutOfRange` unless a place is inside the bounds or, of a bound of a slice, at the upper one."""
        low = self.start[dim]
        upper = low + self[dim] - self.first[dim]
        if not low <= place < upper + ends:
            move = self.origin[dim] if self.origin else 0
            raise OutOfRange(
                f"Place {place + move} of dimension {dim} is outside the dataset: its lower bound is {low + move}, its "
                f"upper bound {upper + move}."
            )

    def unsigned_json(self, value: Any) -> Any:
        """Return a selection in HDF5/JSON's form as it counts from the lower bound."""
        if not self.in_places or not isinstance(value, dict):
            return value
        moved = dict(value)
        for key in ("start", "coordinates", "selection"):
            try:
                array = np.array(moved.get(key))
                if array.dtype.kind == "i" and array.shape[-1:] == (len(self),):
                    for dim in range(len(self)):
                        for place in (array[..., dim].min(), array[..., dim].max()) if array.size else ():
                            self._check(int(place), dim)
                    moved[key] = (array - np.array(self.start)).tolist()
            except (ValueError, OverflowError) as error:
                raise BadRequest(f"The {key} of the selection must be lists of equal length.") from error
        return moved

    def signed_json(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return a selection in HDF5/JSON's form, of what `outside` has made, as a request counts it."""
        for key in ("start", "coordinates") if self.in_places else ():
            if key in found:
                moved = np.asarray(found[key], np.int64) + np.array(self.start, np.int64)
                found[key] = moved if isinstance(found[key], np.ndarray) else moved.tolist()
        return found


def points_of(extent: tuple[int, ...], coords: NDArray[Any]) -> Points:
    """Return the points at the coordinates of a request in an extent."""
    return extent.points(coords) if isinstance(extent, SignedExtent) else Points(extent, coords)


def corner_of(extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place at the origin of an extent's coordinates."""
    return extent.corner if isinstance(extent, SignedExtent) else (0,) * len(extent)


def places_of(extent: tuple[int, ...], coords: NDArray[Any]) -> NDArray[Any]:
    """Return coordinates in an extent, (n, rank) or (n,), as a request counts them."""
    return extent.places(coords) if isinstance(extent, SignedExtent) else coords


def places_along(extent: tuple[int, ...], dim: int, coords: NDArray[Any]) -> NDArray[Any]:
    """Return coordinates along a dimension of an extent, (n,), as a request counts them."""
    if not isinstance(extent, SignedExtent):
        return coords
    return coords.astype(np.int64) + (extent.start[dim] - extent.first[dim])


def outside_of(extent: tuple[int, ...], selection: Selection) -> Selection:
    """Return a selection in an extent as it counts from the first element, without signs."""
    return extent.outside(selection) if isinstance(extent, SignedExtent) else selection


def encodable_of(extent: tuple[int, ...], selection: Selection) -> Selection:
    """Return a selection in an extent as an encoded one counts, which has no signs."""
    return extent.encodable(selection) if isinstance(extent, SignedExtent) else selection


def first_of(extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return the coordinates of an extent's first element."""
    return extent.first if isinstance(extent, SignedExtent) else (0,) * len(extent)
