"""What dense and sparse datasets have in common: their place, type and extent, and changes of the extent."""

from __future__ import annotations

import operator
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import ceil, prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.attributes import Attributes
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
    slice_from,
)
from hsparse.client.indexing.select import Region, Select, select_region
from hsparse.client.progress import Progress, show_rows
from hsparse.client.sources.upload import Slab
from hsparse.client.sparse.element_codec import ElementCodec, codec_of
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import BadRequest, Conflict
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.appender import Appender

T = TypeVar("T")
Side: TypeAlias = Literal["upper", "lower"]
"""The end at which a dimension grows."""
APPENDER = OptionalModule("hsparse.client.appender")
HTML = OptionalModule("hsparse.client.html_repr")
"""Imported when they are used."""
LONG_POLL = 25
"""Seconds after which a server answers that nothing has changed."""
SHUFFLE, FLETCHER32 = 2, 3
NO_COMPRESSORS = (SHUFFLE, FLETCHER32, 5, 6)
"""Ids of HDF5's own filters that do not compress, beside nbit and scaleoffset."""
COMPRESSORS = {1: "gzip", 4: "szip", 32000: "lzf"}
"""h5py's names."""


class Dataset:
    """A dataset on a server. `shape` is the last known extent, None for a null dataspace; `refresh` asks for it.

    One with a lower bound counts no index from the end: an index is a place, `x[-5]` the one at -5. Its places are
    `lower` to `lower` + `shape`, without the last; what is returned is an array as others are, from the first of them.

    A result of more than `max_bytes`, at first that of the connection, is refused before it is fetched.
    All methods raise the server's `HsparseError`. Threads may share a dataset, forked processes too; a pickle has the
    credentials of its `Connection`.

    >>> dataset = f["X"]
    >>> dataset.name, dataset.shape, dataset.id == X.id
    ('/X', (4, 3), True)
    """

    def __init__(self, connection: Connection, record: Json, name: str | None = None) -> None:
        """Take a dataset's record, as `GET /datasets/{id}` answers, and the path it was opened by."""
        self.connection = connection
        self.record = record
        self.name = name
        self.id: str = record["id"]
        self.type = Hdf5Type.parse(record["type"])
        extent = shape_of(record["shape"])
        self.is_null = extent is None
        self.shape: tuple[int, ...] = extent or ()
        self.max_bytes = connection.max_bytes
        self.attrs = Attributes(connection, f"/datasets/{self.id}", record.get("attributes"))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements; object for text and sequences of variable length.

        >>> X.dtype
        dtype('float32')
        """
        return self.type.dtype

    @cached_property
    def _codec(self) -> ElementCodec:
        return codec_of(self.type)

    @property
    def ndim(self) -> int:
        """The number of dimensions.

        >>> X.ndim
        2
        """
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements in the extent, defined or not.

        >>> X.size, X.nnz
        (12, 4)
        """
        return 0 if self.is_null else prod(self.shape)

    @property
    def lower(self) -> tuple[int, ...]:
        """The place of the first element in each dimension, 0 unless the dataset has lower bounds.

        >>> S.lower, S.shape, X.lower
        ((-2, 0), (5, 3), (0, 0))
        """
        return lower_bounds(self.shape)

    @property
    def minlower(self) -> tuple[int | None, ...]:
        """How far the lower bounds may move down; None for an unlimited dimension.

        >>> S.minlower, X.minlower
        ((None, 0), (0, 0))
        """
        limits = self.record["shape"].get("minlower") if isinstance(self.record["shape"], dict) else None
        if limits is None:
            return self.lower
        return tuple(None if limit == "H5S_UNLIMITED" else limit for limit in limits)

    @property
    def maxshape(self) -> tuple[int | None, ...]:
        """How far the extent may grow; None for an unlimited dimension.

        >>> X.maxshape
        (None, 3)
        """
        limits = self.record["shape"].get("maxdims") if isinstance(self.record["shape"], dict) else None
        if limits is None:
            return self.shape
        return tuple(None if limit in ("H5S_UNLIMITED", 0) else limit for limit in limits)

    @cached_property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the stored chunks; None if the dataset has none.

        >>> X.chunks
        (2, 3)
        """
        if self.connection.batch is not None:  # then the server chooses, or has to be asked
            self.connection.batch.send()
        layout = self.record.get("layout") or self.record.get("creationProperties", {}).get("layout") or {}
        return tuple(layout["dims"]) if "dims" in layout else None

    @cached_property
    def fillvalue(self) -> Any:
        """What an element reads as that was never written: a scalar of the dtype.

        >>> X.fillvalue
        np.float32(0.0)
        """
        properties = self.record.get("creationProperties", {})
        given = properties.get("fillValue")
        if given is None:
            return self.type.empty()
        if properties.get("fillValue_encoding") == "base64":
            return self.type.decode(b64decode(given), ())[()]
        return self.type.from_json(given, ())[()]

    @property
    def compression(self) -> str | None:
        """The name of the compressor in h5py's words, None without one.

        >>> f.create_dataset("t", (5,), "f8", compression="gzip", compression_opts=7).compression
        'gzip'
        """
        found = self._compressor()
        return COMPRESSORS.get(found["id"], str(found.get("name", found["id"]))) if found else None

    @property
    def compression_opts(self) -> Any:
        """The level of gzip, or the client values of another compressor; None without one.

        >>> f.create_dataset("t", (5,), "f8", compression=7).compression_opts
        7
        """
        found = self._compressor()
        return found.get("level", found.get("parameters"))

    @property
    def shuffle(self) -> bool:
        """Whether bytes are sorted by their place in elements before they are compressed.

        >>> f.create_dataset("t", (5,), "f8", compression="gzip", shuffle=True).shuffle
        True
        """
        return any(one.get("id") == SHUFFLE for one in self._filters())

    @property
    def fletcher32(self) -> bool:
        """Whether chunks have HDF5's checksum.

        >>> f.create_dataset("t", (5,), "f8", fletcher32=True).fletcher32
        True
        """
        return any(one.get("id") == FLETCHER32 for one in self._filters())

    @property
    def nbytes(self) -> int:
        """The bytes of all elements of the extent in memory, defined or not.

        >>> X.nbytes
        48
        """
        return self.size * self.dtype.itemsize

    def _extent_text(self) -> str:
        """Return what a repr has of the extent; it says so where no index counts from the end."""
        if not isinstance(self.shape, SignedExtent):
            return f"shape {self.shape}"
        each = (places_along(self.shape, dim) for dim in range(self.ndim))
        places = ", ".join(f"{one.start}:{one.stop}" for one in each)
        return f"shape {self.shape}, places [{places}] (none counts from the end)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dataset) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _repr_html_(self) -> str | None:
        return HTML.load().dataset_html(self) if self else None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("A dataset without dimensions has no length.")
        return self.shape[0]

    def __bool__(self) -> bool:
        return not self.connection.is_closed

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("A dataset without dimensions has no rows.")
        return map(self.__getitem__, places_along(self.shape, 0))

    def __reversed__(self) -> Iterator[Any]:
        return map(self.__getitem__, reversed(places_along(self.shape, 0)))

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
        if place <= self.lower[dim]:
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
                f"{self.name or self.id} counts from {self.lower}, {what} from 0: take a part of it as an array."
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
        block: Any,
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
        block: Any,
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

    def __getitem__(self, key: Any) -> Any:
        """Return the selected elements, as the kind of dataset has them."""
        raise NotImplementedError

    def iter_rows(
        self, count: int, start: int | None = None, stop: int | None = None, *, progress: Progress = False
    ) -> Iterator[Any]:
        """Yield `x[start:stop]` in blocks of `count` rows, the last one shorter, each as `x[a:b]` returns it.

        The next block is fetched while one is used: two are in memory at a time. `progress` shows the rows that are
        done with: True by a bar, None by one on a terminal, or a function of them and their total.

        >>> [(block.shape, block.nnz) for block in X.iter_rows(3)]
        [((3, 3), 3), ((1, 3), 1)]
        >>> seen = []
        >>> [block.tolist() for block in D.iter_rows(2, 1, progress=lambda done, total: seen.append((done, total)))]
        [[[3, 4, 5], [6, 7, 8]], [[9, 10, 11]]]
        >>> seen[-1]
        (3, 3)
        """
        if count < 1 or not self.shape:
            raise InvalidValue("Rows come in blocks of 1 or more, from a dataset that has dimensions.")
        cut, extent = slice(start, stop), self.shape
        first, last, _ = (slice_from(cut, 0, extent) if isinstance(extent, SignedExtent) else cut).indices(
            extent[0]
        )
        first, last = (end + lower_bounds(extent)[0] for end in (first, last))
        keys = [slice(row, min(row + count, last)) for row in range(first, last, count)]
        title, total = self.name or self.id, max(0, last - first)
        return show_rows(
            prefetched(self.__getitem__, keys), progress, title, total, lambda block: block.shape[0]
        )

    def follow(
        self, start: int | None = None, *, count: int | None = None, timeout: float | None = None
    ) -> Iterator[Any]:
        """Yield the rows that are appended from now on, or from row `start`, as `x[a:b]` returns them, when they come.

        At most `count` rows at a time. It ends after `timeout` seconds without a new one; without it, never. The server
        is asked by long polls.

        >>> rows = X.follow()
        >>> X.extend(2)
        slice(4, 6, None)
        >>> next(rows).shape, X.shape
        ((2, 3), (6, 3))
        """
        if not self.shape:
            raise InvalidValue("A dataset without dimensions does not grow.")
        last = places_along(self.refresh(), 0).stop
        return self._follow(last if start is None else start, count, timeout)

    def _follow(self, row: int, count: int | None, timeout: float | None) -> Iterator[Any]:
        left = timeout
        while True:
            own = places_along(self.shape, 0)
            row = max(own.start, min(row, own.stop))  # rows that others have cut off may come again
            if row < own.stop:
                rows = slice(row, own.stop if count is None else min(own.stop, row + count))
                yield self[rows]
                row, left = rows.stop, timeout
                continue
            if left is not None and left <= 0:
                return
            seconds = LONG_POLL if left is None else min(LONG_POLL, ceil(left))
            expected = f"[{','.join(map(str, self.shape))}]"
            answer = self.connection.json("GET", self._path("shape"), wait=seconds, expect=expected)
            self.shape = shape_of(answer["shape"]) or ()
            left = None if left is None else left - seconds

    def storage(self) -> tuple[int, int]:
        """Return the number of stored chunks, and their bytes.

        >>> chunks, nbytes = X.storage()
        >>> chunks, nbytes > 0
        (2, True)
        """
        record = self.connection.json("GET", f"/datasets/{self.id}", verbose=1)
        return int(record["num_chunks"]), int(record["allocated_size"])

    def _compressor(self) -> Json:
        """Return the first filter that compresses, an empty one if there is none."""
        return next((one for one in self._filters() if one.get("id", SHUFFLE) not in NO_COMPRESSORS), {})

    def _filters(self) -> list[Json]:
        """Return the filters as answers have them, those of all sections."""
        if self.connection.batch is not None:
            self.connection.batch.send()
        items = self.record.get("creationProperties", {}).get("filters") or []
        return [one for one in items if isinstance(one, dict)]

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

    def _in_region(self, select: Select, work: Callable[[Region], T]) -> T:
        def run(extent: tuple[int, ...]) -> T:
            region = select_region(select, extent)
            if any(self.maxshape[dim] != extent[dim] for dim in region.cut_off):  # or others have extended it
                region = select_region(select, self.refresh())
            return work(region)

        return self._in_current_extent(run)

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
