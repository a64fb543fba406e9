"""Extents of signed datasets: conversion between coordinates of requests and coordinates of plans, grids and chunks.

The coordinates of plans are unsigned. They begin at the first element of the chunk that contains the lower bound, so
that chunks are aligned to the grid. Requests use *places*, which are signed coordinates, or coordinates relative to an
origin given in the request. Clients that do not know signed datasets use coordinates relative to the lower bound.
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
    """The extent of a signed dataset with the lower bounds `lower`: a tuple of its ends in the coordinates of plans.

    `first` is the lower bound in the coordinates of plans. If `in_places`, the request's coordinates are places,
    relative to `origin` if there is one. Otherwise they are relative to the lower bound.
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
        """Return the extent of `lengths` elements from the place `lower`, whose coordinates in plans are `first`."""
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
        """The coordinates of the dataset's first element, as the request counts them."""
        if self.origin:
            return tuple(map(int.__sub__, self.lower, self.origin))
        return self.lower if self.in_places else (0,) * len(self)

    @property
    def image_start(self) -> tuple[int, ...]:
        """The coordinates of the dataset's first element in encoded selections of the request, which are unsigned."""
        return self.start if self.origin else (0,) * len(self)

    @property
    def corner(self) -> tuple[int, ...]:
        """The place whose coordinates in plans are 0."""
        return tuple(map(int.__sub__, self.lower, self.first))

    def for_request(self, *, in_places: bool, origin: Sequence[int] = ()) -> SignedExtent:
        """Return the extent for a request with other coordinates; raise `BadRequest` if `origin` has another rank."""
        if len(origin) not in (0, len(self)):
            raise BadRequest(f"places has {len(origin)} numbers; it needs {len(self)}, one per dimension.")
        return self.of(self.lengths, self.lower, self.first, in_places=in_places, origin=origin)

    def inside(self, selection: Selection) -> Selection:
        """Convert a selection relative to the lower bound to the coordinates of plans."""
        return selection.translate(self.first, tuple(self))

    def outside(self, selection: Selection) -> Selection:
        """Convert a selection in the coordinates of plans to a selection relative to the lower bound."""
        return selection.translate([-first for first in self.first], self.lengths)

    def decoded(self, selection: Selection) -> Selection:
        """Convert an encoded selection of the request to the coordinates of plans; raise `OutOfRange` if outside."""
        for dim, (low, high) in enumerate(zip(*(selection.bounds() or ((), ())), strict=True)):
            self._check(low + self.start[dim] - self.image_start[dim], dim)
            self._check(high - 1 + self.start[dim] - self.image_start[dim], dim)
        moves = map(int.__sub__, self.first, self.image_start)
        return selection.translate(tuple(moves), tuple(self))

    def encodable(self, selection: Selection) -> Selection:
        """Convert a selection from the coordinates of plans for encoding; raise `OutOfRange` below the origin."""
        moves = tuple(map(int.__sub__, self.image_start, self.first))
        for low, move, origin in zip((selection.bounds() or ((), ()))[0], moves, self.origin, strict=False):
            if low + move < 0:
                raise OutOfRange(
                    f"There is an element at {low + move + origin}, below the origin {origin} of the request, and "
                    "unsigned coordinates cannot express it: select less, or ask for Arrow."
                )
        stop = (max(0, move + length) for move, length in zip(moves, self, strict=True))
        return selection.translate(moves, tuple(stop))

    def points(self, coords: NDArray[Any]) -> Points:
        """Return points given by integer coordinates of the request, (n, rank); raise `OutOfRange` if outside."""
        if coords.dtype.kind not in "iu" or coords.ndim != 2 or coords.shape[1] != len(self):
            return Points(tuple(self), coords)  # the constructor raises the error
        for dim in range(len(self) if len(coords) else 0):
            self._check(int(coords[:, dim].min()), dim)
            self._check(int(coords[:, dim].max()), dim)
        moves = np.array(self.first, np.int64) - np.array(self.start, np.int64)
        return Points.trusted(tuple(self), (coords.astype(np.int64) + moves).astype(np.uint64))

    def places(self, coords: NDArray[Any]) -> NDArray[np.int64]:
        """Convert coordinates of plans, (n, rank), or (n,) for rank 1, to the request's coordinates."""
        moves = np.array(self.start, np.int64) - np.array(self.first, np.int64)
        return coords.astype(np.int64) + moves

    def columns(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[np.int64]]:
        """Convert coordinates of plans, one column per dimension, to the request's coordinates."""
        moves = map(int.__sub__, self.start, self.first)
        return [column.astype(np.int64) + move for column, move in zip(columns, moves, strict=True)]

    def unsigned(self, piece: str, dim: int) -> str:
        """Convert an item of a `select` string, without blanks, to an item relative to the lower bound.

        Raises `OutOfRange` for a coordinate outside the bounds. Malformed items are returned unchanged.
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
        """Raise `OutOfRange` unless a request's coordinate is inside the bounds or, with `ends`, at the upper bound."""
        low = self.start[dim]
        upper = low + self[dim] - self.first[dim]
        if not low <= place < upper + ends:
            move = self.origin[dim] if self.origin else 0
            raise OutOfRange(
                f"Place {place + move} of dimension {dim} is outside the dataset: the lower bound is {low + move}, the "
                f"(exclusive) upper bound is {upper + move}."
            )

    def unsigned_json(self, value: Any) -> Any:
        """Convert an HDF5/JSON selection of the request to a selection relative to the lower bound."""
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
        """Convert the HDF5/JSON of a selection relative to the lower bound to the request's coordinates, in place."""
        for key in ("start", "coordinates") if self.in_places else ():
            if key in found:
                moved = np.asarray(found[key], np.int64) + np.array(self.start, np.int64)
                found[key] = moved if isinstance(found[key], np.ndarray) else moved.tolist()
        return found


def points_of(extent: tuple[int, ...], coords: NDArray[Any]) -> Points:
    """Return points given by coordinates of the request, (n, rank), in a signed or unsigned extent."""
    return extent.points(coords) if isinstance(extent, SignedExtent) else Points(extent, coords)


def corner_of(extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place whose coordinates in plans are 0; in an unsigned extent, the place is 0."""
    return extent.corner if isinstance(extent, SignedExtent) else (0,) * len(extent)


def places_of(extent: tuple[int, ...], coords: NDArray[Any]) -> NDArray[Any]:
    """Convert coordinates of plans, (n, rank), or (n,) for rank 1, to the request's coordinates."""
    return extent.places(coords) if isinstance(extent, SignedExtent) else coords


def places_along(extent: tuple[int, ...], dim: int, coords: NDArray[Any]) -> NDArray[Any]:
    """Convert coordinates of plans along dimension `dim`, (n,), to the request's coordinates."""
    if not isinstance(extent, SignedExtent):
        return coords
    return coords.astype(np.int64) + (extent.start[dim] - extent.first[dim])


def outside_of(extent: tuple[int, ...], selection: Selection) -> Selection:
    """Convert a selection in the coordinates of plans to unsigned coordinates relative to the lower bound."""
    return extent.outside(selection) if isinstance(extent, SignedExtent) else selection


def encodable_of(extent: tuple[int, ...], selection: Selection) -> Selection:
    """Convert a selection in the coordinates of plans to the unsigned coordinates of encoded selections."""
    return extent.encodable(selection) if isinstance(extent, SignedExtent) else selection


def first_of(extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first element's coordinates in plans, which are 0 in an unsigned extent."""
    return extent.first if isinstance(extent, SignedExtent) else (0,) * len(extent)
