"""How the extent of a dataset changes: what grows, what is appended, what is cut off, at either end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue, NoSuchAxis, as_client_errors, in_own_words
from hsparse.client.indexing.places import (
    grown_to,
    lower_bounds,
    place_from,
    placed,
    places_along,
    places_param,
    same_kind,
)
from hsparse.client.sources.upload import Slab
from hsparse.client.sparse.sparse_values import Values
from hsparse.client.types.hdf5_type import shape_of
from hsparse.errors import BadRequest, Conflict
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.appender import Appender

T = TypeVar("T")
Side: TypeAlias = Literal["upper", "lower"]
"""The end at which a dimension grows."""
APPENDER = OptionalModule("hsparse.client.appender")
"""Imported when it is used."""


class DatasetExtent:
    """The extent of a `Dataset`, as it was last known, and its changes.

    >>> X.extend(2), X.shape
    (slice(4, 6, None), (6, 3))
    """

    connection: Connection
    id: str
    name: str | None
    shape: tuple[int, ...]

    def refresh(self) -> tuple[int, ...]:
        """Ask the server for the extent, which others may have changed, and return it.

        >>> f["X"].extend(6)
        slice(4, 10, None)
        >>> X.shape, X.refresh()
        ((4, 3), (10, 3))
        """
        extent = shape_of(self.connection.json("GET", self._path("shape"))["shape"]) or ()
        self.shape = extent
        return extent

    def resize(self, shape: Sequence[int], *, erase: bool = False) -> None:
        """Set the extent; with `erase` any dimension may become smaller, and what falls outside is erased for good.

        The upper end moves, lower bounds stay. Without `erase` such a resize raises `BadRequest`. `Conflict` if the
        extent is not `shape` when the server sets it: others have written what the caller does not know of.

        >>> X.resize((8, 3))
        >>> X.resize((1, 3))
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: A resize of ... from [8, 3] to [1, 3] erases what lies beyond ...
        >>> X.resize((1, 3), erase=True)
        >>> X.shape, X.nnz
        ((1, 3), 2)
        """
        seen, wanted = self.shape if erase else self.refresh(), tuple(shape)
        smaller = [dim for dim, (old, new) in enumerate(zip(seen, wanted, strict=False)) if new < old]
        if smaller and not erase:
            raise InvalidValue(
                f"A resize of {self.name or self.id} from {list(seen)} to {list(wanted)} erases what lies beyond in "
                f"dimension {smaller[0]}; give erase=True if that is meant."
            )
        self._set_shape({"shape": list(wanted), "expect": list(seen)}, seen)
        self.shape = same_kind(seen, wanted)

    def drop_before(self, place: int, axis: int = 0) -> None:
        """Raise the lower bound of a dimension to a place: what is below is erased for good, the upper end stays.

        It costs what is dropped. Nothing happens if the lower bound is there or above. `OutOfRange` for a place above
        the upper bound. `Conflict` if the lower bounds changed meanwhile.

        >>> S.drop_before(1)
        >>> S.lower, S.shape, S[1].toarray()
        ((1, 0), (2, 3), array([0., 0., 3.], dtype=float32))
        """
        seen = self.refresh()
        dim = self._axis(axis, seen)
        self._require_lower("drop_before")
        if place <= lower_bounds(seen)[dim]:
            return
        rest = seen[dim] - place_from(place, dim, seen, is_stop=True)
        lower = [*lower_bounds(seen)]
        lower[dim] = place
        self._set_shape({"lower": lower}, seen)
        self.shape = placed((*seen[:dim], rest, *seen[dim + 1 :]), lower)

    def _set_shape(self, body: Json, seen: tuple[int, ...]) -> None:
        if isinstance(seen, SignedExtent):
            body["expect_lower"] = list(seen.lower)
        with in_own_words(self.id, self.name):
            self.connection.json("PUT", self._path("shape"), body)

    def _require_lower(self, what: str) -> None:
        if not isinstance(self.shape, SignedExtent):
            raise InvalidValue(
                f"{self.name or self.id} has no lower bound, so it has no {what}: create it with lower= or minlower=."
            )

    def check_from_zero(self, what: str) -> None:
        """Raise `InvalidValue` if the dataset has lower bounds, which `what` does not know.

        >>> X.check_from_zero("Batches")
        >>> S.check_from_zero("Batches")
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: /S counts from (-2, 0), Batches from 0: take a part of it as an array.
        """
        if isinstance(self.shape, SignedExtent):
            raise InvalidValue(
                f"{self.name or self.id} counts from {self.shape.lower}, {what} from 0: take a part of it as an array."
            )

    def extend(self, count: int, axis: int = 0, *, side: Side = "upper") -> slice:
        """Append `count` rows, columns, ... to a dimension and return the slice of the new ones in it.

        Any number of clients may do so at the same time: each gets a slice of its own. The `side` of a dataset with
        lower bounds may be "lower".

        >>> X.extend(10), X.shape
        (slice(4, 14, None), (14, 3))
        """
        extent = self.shape
        dim = self._axis(axis, extent)
        body = {"extend": count, "extend_dim": dim} | self._on_side(side, "side")
        with in_own_words(self.id, self.name):
            answer = self.connection.json("PUT", self._path("shape"), body, places=places_param(extent))
        return self._grown(answer, dim)

    def append(
        self,
        block: Values,
        values: ArrayLike | None = None,
        *,
        count: int | None = None,
        axis: int = 0,
        drop_fill: bool = False,
        side: Side = "upper",
    ) -> slice:
        """Grow a dimension and define elements there, as one change; return the slice of what is new.

        To a dense dataset: an array that has the shape of what is new, or of a single row or frame. To a sparse one
        such an array, or a sparse array (scipy's in any format, `sparse.COO`), of which the stored elements are
        defined; or `append(coords, values, count=10)`: the elements at `coords: (n, rank)` in 10 new rows, the first
        of which is row 0.

        Of a dataset with lower bounds the `side` may be "lower": then the last of the new rows is next to the old ones.

        Others see the old extent, or the new one with the values. Any number of clients may append at the same time.
        What a request has no room for (96 MiB, or the server's limit) takes several: others see the new extent first,
        then values.
        `OutOfRange` for `coords` that are not in what is new,
        `InvalidValue` for a shape that does not fit, `WrongType` for a type that numpy does not cast by "same_kind".

        >>> import scipy.sparse
        >>> X.append(scipy.sparse.csr_array([[0, 0, 8], [9, 0, 0]]))
        slice(4, 6, None)
        >>> X.append([[0, 1], [9, 1]], [5, 6], count=10)
        slice(6, 16, None)
        >>> X.shape, X.nnz
        ((16, 3), 8)
        """
        dim = self._axis(axis, self.shape)
        return self._append_slab(self._slab(block, values, count, dim), dim, drop_fill, side)

    def prepend(
        self,
        block: Values,
        values: ArrayLike | None = None,
        *,
        count: int | None = None,
        axis: int = 0,
        drop_fill: bool = False,
    ) -> slice:
        """Append at the lower end: what is given lies directly below the old lower bound, in its order; see `append`.

        What was there stays at its places, and none of it is written again.

        >>> S.prepend([[7, 8, 9], [4, 5, 6]])
        slice(-4, -2, None)
        >>> S[-3].toarray(), S.lower, S.shape
        (array([4., 5., 6.], dtype=float32), (-4, 0), (7, 3))
        """
        return self.append(block, values, count=count, axis=axis, drop_fill=drop_fill, side="lower")

    def appender(
        self,
        *,
        axis: int = 0,
        max_delay: float = 0.05,
        max_bytes: int = 16 << 20,
        drop_fill: bool = False,
        side: Side = "upper",
    ) -> Appender:
        """Return an appender: it sends many small appends by few requests, and tells the place of each.

        Of the `side` "lower" each append lies below the one before, as `prepend` has it.

        A request is sent when the first append has waited for `max_delay` seconds, or `max_bytes` wait. Its elements
        are durable and visible once it is answered, in the order of the appends. Of a sparse dataset all elements of a
        dense block are defined; with `drop_fill` those that are not the fill value.

        >>> with X.appender(max_delay=0.05) as appender:
        ...     places = [appender.append([number] * 3) for number in range(100)]
        >>> places[0].result(), X.shape
        (slice(4, 5, None), (104, 3))
        """
        if max_delay < 0 or max_bytes < 1:
            raise InvalidValue(f"An appender waits for {max_delay} seconds or {max_bytes} bytes: give more.")
        dim = self._axis(axis, self.shape)
        appender: Appender = APPENDER.load().Appender(
            lambda block, values, count: self._slab(block, values, count, dim),
            lambda slab: self._append_slab(slab, dim, drop_fill, side),
            dim,
            max_delay,
            max_bytes,
            below=bool(self._on_side(side, "side")),
        )
        return appender

    def _slab(self, block: Any, values: ArrayLike | None, count: int | None, dim: int) -> Slab:
        """Return what is appended along `dim`, as elements travel; raise if that does not fit."""
        raise NotImplementedError

    def _append_slab(self, slab: Slab, dim: int, drop_fill: bool, side: Side) -> slice:
        """Append it; return the slice of what is new."""
        raise NotImplementedError

    def _on_side(self, side: Side, name: str) -> dict[str, str]:
        """Return the parameter, or member of a body, that says at which end a dimension grows."""
        if side not in ("upper", "lower"):
            raise InvalidValue(f"{name} is 'upper' or 'lower', not {side!r}.")
        if side == "upper":
            return {}
        self._require_lower("lower side")
        return {name: side}

    def _nothing_new(self, dim: int, side: Side) -> slice:
        """Return the slice of no rows at an end."""
        own = places_along(self.shape, dim)
        end = own.start if side == "lower" else own.stop
        return slice(end, end)

    def _whole_slab(self, values: NDArray[Any], dim: int) -> Slab:
        """Return an array of all that is new, or of one row or frame."""

        def fitting(extent: tuple[int, ...]) -> Slab:
            array = np.expand_dims(values, dim) if values.ndim == len(extent) - 1 else values
            self._check_slab(array.shape, extent, dim)
            return Slab(array.shape[dim], array)

        return self._in_current_extent(fitting)

    def _check_slab(self, shape: tuple[int, ...], extent: tuple[int, ...], dim: int) -> None:
        """Raise `InvalidValue` unless an array of the shape can be appended along the dimension."""
        own = shape[:dim] + shape[dim + 1 :]
        if len(shape) != len(extent) or own != extent[:dim] + extent[dim + 1 :]:
            raise InvalidValue(
                f"What is appended to {self.name or self.id} along dimension {dim} has its other lengths, those of "
                f"{list(extent)}; the values have the shape {list(shape)}."
            )

    def check_extent(self, extent: Sequence[int]) -> None:
        """Raise `Conflict` if the last known extent is smaller than `extent`: what was read by it may be short.

        >>> X.check_extent((9, 3))
        Traceback (most recent call last):
        hsparse.errors.Conflict: The extent of /X is [4, 3] by now, not [9, 3]: open it again.
        """
        if (
            len(extent) != len(self.shape)
            or any(map(operator.lt, self.shape, extent))
            or _is_moved(self.shape, extent)
        ):
            raise Conflict(
                f"The extent of {self.name or self.id} is {list(self.shape)} by now, not {list(extent)}: open it again."
            )

    def _path(self, what: str) -> str:
        return f"/datasets/{self.id}/{what}"

    def _axis(self, axis: int, extent: tuple[int, ...]) -> int:
        """Return the dimension of an axis, which may be counted from the last one."""
        rank = len(extent)
        if not -rank <= axis < rank:
            raise NoSuchAxis(f"{self.name or self.id} has no axis {axis}; it has {rank} dimensions.")
        return axis % rank

    def _grown(self, answer: Json, dim: int) -> slice:
        """Return the slice of what is new along `dim`, from an answer with its selection; note the larger extent."""
        start, stop = map(int, answer["selection"].strip("[]").split(",")[dim].split(":"))
        self.shape = grown_to(self.shape, dim, slice(start, stop))
        return slice(start, stop)

    def _in_current_extent(self, work: Callable[[tuple[int, ...]], T]) -> T:
        """Return `work(extent)` for the last known extent; repeat it once after a `BadRequest`, if that has changed.

        A bad request changes nothing, so it can be repeated. Other threads may set `shape` meanwhile.
        """
        extent = self.shape
        with in_own_words(self.id, self.name), as_client_errors():
            try:
                return work(extent)
            except BadRequest:
                current = self.refresh()
                if current == extent and lower_bounds(current) == lower_bounds(extent):
                    raise
            return work(current)


def _is_moved(extent: tuple[int, ...], old: Sequence[int]) -> bool:
    """Say whether an extent with lower bounds lacks a place of an older one."""
    if not isinstance(extent, SignedExtent) or not isinstance(old, SignedExtent):
        return False
    pairs = ((places_along(extent, dim), places_along(old, dim)) for dim in range(len(extent)))
    return any(now.start > then.start or now.stop < then.stop for now, then in pairs)
