"""What dense and sparse datasets have in common: their place, type and extent, and changes of the extent."""

from __future__ import annotations

import operator
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import ceil, prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.attributes import Attributes
from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue, NoSuchAxis, as_client_errors, in_own_words
from hsparse.client.indexing.select import Region, Select, select_points, select_region
from hsparse.client.progress import Progress, show_rows
from hsparse.client.sources.upload import Slab
from hsparse.client.sparse.element_codec import ElementCodec, codec_of
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import BadRequest, Conflict
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.appender import Appender

T = TypeVar("T")
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

        Without it such a resize raises `BadRequest`. `Conflict` if the extent is not `shape` when the server sets it:
        others have written what the caller does not know of.

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
        with in_own_words(self.id, self.name):
            self.connection.json("PUT", self._path("shape"), {"shape": list(wanted), "expect": list(seen)})
        self.shape = wanted

    def extend(self, count: int, axis: int = 0) -> slice:
        """Append `count` rows, columns, ... to a dimension and return the slice of the new ones in it.

        Any number of clients may do so at the same time: each gets a slice of its own.

        >>> X.extend(10), X.shape
        (slice(4, 14, None), (14, 3))
        """
        dim = self._axis(axis, self.shape)
        body = {"extend": count, "extend_dim": dim}
        with in_own_words(self.id, self.name):
            return self._grown(self.connection.json("PUT", self._path("shape"), body), dim)

    def appender(
        self,
        *,
        axis: int = 0,
        max_delay: float = 0.05,
        max_bytes: int = 16 << 20,
        drop_fill: bool = False,
    ) -> Appender:
        """Return an appender: it sends many small appends by few requests, and tells the place of each.

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
            lambda slab: self._append_slab(slab, dim, drop_fill),
            dim,
            max_delay,
            max_bytes,
        )
        return appender

    def _slab(self, block: Any, values: ArrayLike | None, count: int | None, dim: int) -> Slab:
        """Return what is appended along `dim`, as elements travel; raise if that does not fit."""
        raise NotImplementedError

    def _append_slab(self, slab: Slab, dim: int, drop_fill: bool) -> slice:
        """Append it; return the slice of what is new."""
        raise NotImplementedError

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
        if len(extent) != len(self.shape) or any(map(operator.lt, self.shape, extent)):
            raise Conflict(
                f"The extent of {self.name or self.id} is {list(self.shape)} by now, not {list(extent)}: open it again."
            )

    def __getitem__(self, key: Any) -> Any:
        """Return the selected elements, as the kind of dataset has them."""
        raise NotImplementedError

    def iter_rows(
        self, count: int, start: int = 0, stop: int | None = None, *, progress: Progress = False
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
        first, last, _ = slice(start, stop).indices(self.shape[0])
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
        last = self.refresh()[0]
        return self._follow(last if start is None else start, count, timeout)

    def _follow(self, row: int, count: int | None, timeout: float | None) -> Iterator[Any]:
        left = timeout
        while True:
            row = min(row, self.shape[0])  # rows that others have cut off may come again
            if row < self.shape[0]:
                rows = slice(row, self.shape[0] if count is None else min(self.shape[0], row + count))
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
        extent = self.shape
        self.shape = (*extent[:dim], max(extent[dim], stop), *extent[dim + 1 :])
        return slice(start, stop)

    def _points(self, coords: ArrayLike) -> NDArray[np.uint64]:
        """Return coordinates, (n, rank), that lie in the extent; `OutOfRange` for others."""
        return self._in_current_extent(lambda extent: select_points(coords, extent).coords())

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
                if current == extent:
                    raise
            return work(current)
