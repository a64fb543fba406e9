"""Changes of a dataset's extent: resize, append and drop rows, at either end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.creation import MaxShape, limits_json
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

OTHERS_WROTE = "other clients have extended it meanwhile: repeat the call"
NOT_ALLOWED = "leave erase=False out"
T = TypeVar("T")
Side: TypeAlias = Literal["upper", "lower"]
"""The end at which a dimension grows."""
APPENDER = OptionalModule("hsparse.client.appender")
"""Imported on first use."""


class DatasetExtent:
    """The last known extent of a `Dataset`, and the methods that change the extent.

    >>> X.extend(2), X.shape
    (slice(4, 6, None), (6, 3))
    """

    connection: Connection
    record: Json
    id: str
    name: str | None
    shape: tuple[int, ...]

    def refresh(self) -> tuple[int, ...]:
        """Ask the server for the extent, which other clients may have changed, and return it.

        >>> f["X"].extend(6)
        slice(4, 10, None)
        >>> X.shape, X.refresh()
        ((4, 3), (10, 3))
        """
        dataspace = self.connection.json("GET", self._path("shape"))["shape"]
        extent = shape_of(dataspace) or ()
        self.shape, self.record = extent, {**self.record, "shape": dataspace}
        return extent

    def resize(
        self,
        shape: Sequence[int] | int | None = None,
        axis: int | None = None,
        *,
        erase: bool = True,
        minlower: MaxShape = None,
    ) -> None:
        """Set the extent, or with `axis` one length, as in h5py; elements outside the new extent are erased for good.

        The upper end moves, and lower bounds stay. `minlower`, for datasets with lower bounds, limits how far these may
        move down (None is unlimited) and may be given alone. Raises `Conflict` if a limit is above its bound.

        Raises `InvalidValue` for a resize that shrinks a dimension with `erase=False`, or that shrinks it only because
        other clients have extended it meanwhile. Raises `Conflict` if the extent changes during the call.

        >>> X.resize((8, 3))
        >>> X.resize((1, 3), erase=False)
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: A resize of ... from [8, 3] to [1, 3] would erase elements ...
        >>> X.resize(1, axis=0)
        >>> X.shape, X.nnz
        ((1, 3), 2)
        >>> S.resize(minlower=(-100, 0)), S.minlower
        (None, (-100, 0))
        """
        limits = {} if minlower is None else {"minlower": limits_json(minlower)}
        if limits:
            self._require_lower("minlower")
        if shape is None:
            if not limits:
                raise InvalidValue("A resize needs a shape or, with lower bounds, minlower.")
            with in_own_words(self.id, self.name):
                self.connection.json("PUT", self._path("shape"), limits)
            self.refresh()
            return
        known = self.shape
        wanted = self._resized(shape, axis)
        is_meant = erase and bool(_smaller(known, wanted))
        seen = known if is_meant else self.refresh()
        if not is_meant and (smaller := _smaller(seen, wanted)):
            raise InvalidValue(
                f"A resize of {self.name or self.id} from {list(seen)} to {list(wanted)} would erase elements in "
                f"dimension {smaller[0]}; {OTHERS_WROTE if erase else NOT_ALLOWED} if that is intended."
            )
        self._set_shape({"shape": list(wanted), "expect": list(seen)} | limits, seen)
        self.shape = same_kind(seen, wanted)
        if limits:
            self.refresh()

    def _resized(self, shape: Sequence[int] | int, axis: int | None) -> tuple[int, ...]:
        """Return the extent that a resize asks for."""
        if axis is not None:
            dim = self._axis(axis, self.shape)
            return (*self.shape[:dim], int(np.asarray(shape)), *self.shape[dim + 1 :])
        return tuple(map(int, np.atleast_1d(shape)))

    def drop_before(self, place: int, axis: int = 0) -> None:
        """Raise the lower bound of a dimension to `place`, and erase the elements below it; the upper end stays.

        The cost depends on the dropped part only. Nothing changes if the lower bound is already at or above `place`.
        Raises `OutOfRange` if `place` is above the upper bound, `Conflict` if the lower bounds changed meanwhile.

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
        """Raise `InvalidValue` if the dataset has lower bounds; `what` names the use that does not support them.

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
        """Append `count` rows (or columns, ...) to a dimension, and return the slice of their indices.

        Concurrent clients each get a slice of their own. `side` may be "lower" for a dataset with lower bounds.

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
        """Grow a dimension and define elements there, as one change; return the slice of the new rows.

        A dense dataset takes an array with the shape of the new part, or of a single row or frame. A sparse dataset
        takes such an array, or a sparse array (any scipy format, `sparse.COO`), whose stored elements become defined;
        or `append(coords, values, count=10)`: 10 rows, and elements in them at `coords: (n, rank)`, counted from the
        first new row. With `side="lower"`, for datasets with lower bounds, the new rows go directly below the old ones.

        Other clients see the old extent, or the new one with the values, and may append concurrently. An append too
        large for one request (96 MiB, or the server's limit) is split: other clients then see the new extent before the
        values. Raises `OutOfRange` for `coords` outside the new part, `InvalidValue` for a shape that does not fit, and
        `WrongType` for a type that numpy does not cast by "same_kind".

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
        """Append at the lower end: the new rows go directly below the old lower bound, in their order; see `append`.

        Existing elements keep their coordinates, and are not rewritten.

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
        """Return an appender, which sends many small appends in few requests and reports the slice of each.

        With `side="lower"` each append goes below the previous one, as in `prepend`.

        A request is sent once the first append has waited for `max_delay` seconds, or `max_bytes` wait. Its elements
        are durable and visible when the request returns, in the order of the appends. In a sparse dataset all elements
        of a dense block become defined, or with `drop_fill` only those that differ from the fill value.

        >>> with X.appender(max_delay=0.05) as appender:
        ...     places = [appender.append([number] * 3) for number in range(100)]
        >>> places[0].result(), X.shape
        (slice(4, 5, None), (104, 3))
        """
        if max_delay < 0 or max_bytes < 1:
            raise InvalidValue(f"max_delay must be 0 or more, max_bytes 1 or more: {max_delay}, {max_bytes}.")
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
        """Return the arguments of an append along `dim` as a slab: the new elements and the number of new rows.

        Raise `InvalidValue`, `WrongType` or `OutOfRange` if they do not fit the dataset.
        """
        raise NotImplementedError

    def _append_slab(self, slab: Slab, dim: int, drop_fill: bool, side: Side) -> slice:
        """Append a slab made by `_slab`, and return the slice of the new rows."""
        raise NotImplementedError

    def _on_side(self, side: Side, name: str) -> dict[str, str]:
        """Return the request parameter for the end at which a dimension grows; an empty dict for "upper"."""
        if side not in ("upper", "lower"):
            raise InvalidValue(f"{name} is 'upper' or 'lower', not {side!r}.")
        if side == "upper":
            return {}
        self._require_lower("lower side")
        return {name: side}

    def _nothing_new(self, dim: int, side: Side) -> slice:
        """Return the empty slice at the end that `side` names, as the result of an append of no rows."""
        own = places_along(self.shape, dim)
        end = own.start if side == "lower" else own.stop
        return slice(end, end)

    def _whole_slab(self, values: NDArray[Any], dim: int) -> Slab:
        """Return the slab of an array that covers the new part, or a single row or frame of it."""

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
                f"Values of shape {list(shape)} cannot be appended to {self.name or self.id} along dimension {dim}: "
                f"the other lengths must be those of {list(extent)}."
            )

    def check_extent(self, extent: Sequence[int]) -> None:
        """Raise `Conflict` if the dataset was shrunk below `extent`, an older extent: reads would be incomplete.

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
        """Return the dimension of an axis, which may count from the last one; raise `NoSuchAxis` if there is none."""
        rank = len(extent)
        if not -rank <= axis < rank:
            raise NoSuchAxis(f"{self.name or self.id} has no axis {axis}; it has {rank} dimensions.")
        return axis % rank

    def _grown(self, answer: Json, dim: int) -> slice:
        """Return the slice of the new rows along `dim`, which the server's answer names, and update the extent."""
        start, stop = map(int, answer["selection"].strip("[]").split(",")[dim].split(":"))
        self.shape = grown_to(self.shape, dim, slice(start, stop))
        return slice(start, stop)

    def _in_current_extent(self, work: Callable[[tuple[int, ...]], T]) -> T:
        """Return `work(extent)`; after a `BadRequest`, repeat it once if the extent has changed meanwhile.

        The repeat is safe, because a bad request changes nothing. Other threads may set `shape` meanwhile.
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


def _smaller(extent: tuple[int, ...], wanted: tuple[int, ...]) -> list[int]:
    """Return the dimensions that become smaller."""
    return [dim for dim, (old, new) in enumerate(zip(extent, wanted, strict=False)) if new < old]


def _is_moved(extent: tuple[int, ...], old: Sequence[int]) -> bool:
    """Return whether an extent with lower bounds lacks coordinates of an older one."""
    if not isinstance(extent, SignedExtent) or not isinstance(old, SignedExtent):
        return False
    pairs = ((places_along(extent, dim), places_along(old, dim)) for dim in range(len(extent)))
    return any(now.start > then.start or now.stop < then.stop for now, then in pairs)
