"""Changes of the extent of a dataset: resize the dataset, and append or drop rows at the upper or lower end."""

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

OTHERS_WROTE = "other clients have extended the dataset since this client read the extent: repeat the call"
NOT_ALLOWED = "omit erase=False"
T = TypeVar("T")
Side: TypeAlias = Literal["upper", "lower"]
"""The end at which a dimension grows."""
APPENDER = OptionalModule("hsparse.client.appender")
"""The module is imported at its first use."""


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
        """Ask the server for the current extent, which other clients may have changed, and return the extent.

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
        """Set the extent or, with `axis`, the length of one dimension; elements outside of the new extent are erased.

        The upper ends move, and lower bounds stay. `minlower`, for datasets with lower bounds, sets the minimum of each
        lower bound (None is unlimited); it may be given alone. Raises `Conflict` if a minimum is above its lower bound.

        Raises `InvalidValue` if a dimension would shrink with `erase=False`, or would shrink only because other clients
        have extended it since the last `refresh`. Raises `Conflict` if the extent changes during the call.

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
                raise InvalidValue("resize needs a new shape, or minlower for a dataset with lower bounds.")
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
        """Return the new extent that the arguments of `resize` ask for."""
        if axis is not None:
            dim = self._axis(axis, self.shape)
            return (*self.shape[:dim], int(np.asarray(shape)), *self.shape[dim + 1 :])
        return tuple(map(int, np.atleast_1d(shape)))

    def drop_before(self, place: int, axis: int = 0) -> None:
        """Raise the lower bound of a dimension to the coordinate `place`, and erase all elements below `place`.

        The cost depends only on the erased elements. Nothing changes if the lower bound is already at or above `place`.
        Raises `OutOfRange` if `place` is above the upper bound, or `Conflict` if other clients move the lower bounds.

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
                f"{what} needs lower bounds, which {self.name or self.id} lacks: create it with lower= or minlower=."
            )

    def check_from_zero(self, what: str) -> None:
        """Raise `InvalidValue` if the dataset has lower bounds; `what` names the caller, which does not support these.

        >>> X.check_from_zero("Batches")
        >>> S.check_from_zero("Batches")
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: Batches does not support lower bounds, as /S has: read it as an array.
        """
        if isinstance(self.shape, SignedExtent):
            raise InvalidValue(
                f"{what} does not support lower bounds, as {self.name or self.id} has: read it as an array."
            )

    def extend(self, count: int, axis: int = 0, *, side: Side = "upper") -> slice:
        """Append `count` rows (indices of the dimension `axis`) without values; return the slice of the new indices.

        Clients that call this at the same time get different slices. `side` is "lower" to extend below lower bounds.

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
        """Append rows with values to the dimension `axis`, in one change; return the slice of the new rows.

        `block` is an array with the shape of all new rows, or of a single row or frame. For a sparse dataset, it may be
        a sparse array (any scipy format, `sparse.COO`), whose stored elements become defined; or `append(coords,
        values, count=10)` appends 10 rows with elements at `coords: (n, rank)`, which count from the first new row.
        With `side="lower"`, for datasets with lower bounds, the new rows go directly below the old rows.

        Other clients see either the old extent, or the new extent with all values, and may append at the same time. An
        append that is too large for one request (96 MiB, or the server's limit) is split: other clients then see the
        new extent before the values. Raises `OutOfRange` if `coords` are outside of the new rows, `InvalidValue` if the
        shape does not fit, or `WrongType` if numpy does not cast the dtype by "same_kind".

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
        """Append rows directly below the lower bound, in the order of `block`; for the arguments see `append`.

        Existing elements keep their coordinates and are not rewritten.

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
        """Return an `Appender`, which sends many small appends in few requests and reports the slice of each append.

        With `side="lower"`, each append goes below the previous append, as in `prepend`.

        A request is sent when an append has waited for `max_delay` seconds, or when `max_bytes` bytes wait. Its rows
        are durable and visible when the request returns, in the order of the appends. In a sparse dataset all elements
        of a dense block become defined or, with `drop_fill`, only the elements that differ from the fill value.

        >>> with X.appender(max_delay=0.05) as appender:
        ...     places = [appender.append([number] * 3) for number in range(100)]
        >>> places[0].result(), X.shape
        (slice(4, 5, None), (104, 3))
        """
        if max_delay < 0 or max_bytes < 1:
            raise InvalidValue("max_delay must be at least 0 seconds, and max_bytes must be at least 1 byte.")
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

        Raise `InvalidValue`, `WrongType` or `OutOfRange` if the arguments do not fit the dataset.
        """
        raise NotImplementedError

    def _append_slab(self, slab: Slab, dim: int, drop_fill: bool, side: Side) -> slice:
        """Append a slab that `_slab` has made, and return the slice of the new rows."""
        raise NotImplementedError

    def _on_side(self, side: Side, name: str) -> dict[str, str]:
        """Return a dict with the request parameter `name` if `side` is "lower", or an empty dict if it is "upper"."""
        if side not in ("upper", "lower"):
            raise InvalidValue(f"{name} must be 'upper' or 'lower', not {side!r}.")
        if side == "upper":
            return {}
        self._require_lower("lower side")
        return {name: side}

    def _nothing_new(self, dim: int, side: Side) -> slice:
        """Return the result of an append of no rows: the empty slice at the upper or lower end of the dimension."""
        own = places_along(self.shape, dim)
        end = own.start if side == "lower" else own.stop
        return slice(end, end)

    def _whole_slab(self, values: NDArray[Any], dim: int) -> Slab:
        """Return the slab of an array that has the values of all new rows, or of a single row or frame."""

        def fitting(extent: tuple[int, ...]) -> Slab:
            array = np.expand_dims(values, dim) if values.ndim == len(extent) - 1 else values
            self._check_slab(array.shape, extent, dim)
            return Slab(array.shape[dim], array)

        return self._in_current_extent(fitting)

    def _check_slab(self, shape: tuple[int, ...], extent: tuple[int, ...], dim: int) -> None:
        """Raise `InvalidValue` if an array of this shape cannot be appended along `dim` to a dataset of this extent."""
        own = shape[:dim] + shape[dim + 1 :]
        if len(shape) != len(extent) or own != extent[:dim] + extent[dim + 1 :]:
            raise InvalidValue(
                f"Values of shape {list(shape)} cannot be appended to {self.name or self.id} along dimension {dim}: "
                f"in all other dimensions, the lengths must equal those of the extent {list(extent)}."
            )

    def check_extent(self, extent: Sequence[int]) -> None:
        """Raise `Conflict` if the dataset no longer contains the older extent `extent`, so reads would be incomplete.

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
        """Return the dimension of `axis`, which is negative to count from the end; `NoSuchAxis` if out of range."""
        rank = len(extent)
        if not -rank <= axis < rank:
            raise NoSuchAxis(f"There is no axis {axis}: {self.name or self.id} has only {rank} dimensions.")
        return axis % rank

    def _grown(self, answer: Json, dim: int) -> slice:
        """Return the slice of the new rows along `dim` from the server's answer, and update the known extent."""
        start, stop = map(int, answer["selection"].strip("[]").split(",")[dim].split(":"))
        self.shape = grown_to(self.shape, dim, slice(start, stop))
        return slice(start, stop)

    def _in_current_extent(self, work: Callable[[tuple[int, ...]], T]) -> T:
        """Return `work(extent)`; if it raises `BadRequest` and the extent has changed, call `work` with the new extent.

        The second call is safe, because a bad request changes nothing. Other threads may set `shape` during the call.
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
    """Return the dimensions in which `wanted` is smaller than `extent`."""
    return [dim for dim, (old, new) in enumerate(zip(extent, wanted, strict=False)) if new < old]


def _is_moved(extent: tuple[int, ...], old: Sequence[int]) -> bool:
    """Return whether an extent with lower bounds lacks coordinates of the older extent `old`."""
    if not isinstance(extent, SignedExtent) or not isinstance(old, SignedExtent):
        return False
    pairs = ((places_along(extent, dim), places_along(old, dim)) for dim in range(len(extent)))
    return any(now.start > then.start or now.stop < then.stop for now, then in pairs)
