"""The common base class of dense and sparse datasets: name, type, extent, filters and iteration over rows."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import cached_property
from math import ceil, prod
from typing import Any, TypeVar

import numpy as np

from hsparse.client.attributes import Attributes
from hsparse.client.connection import Connection, Json
from hsparse.client.dataset_extent import DatasetExtent
from hsparse.client.errors import InvalidValue
from hsparse.client.indexing.places import (
    lower_bounds,
    places_along,
    slice_from,
)
from hsparse.client.indexing.select import Region, Select, select_region
from hsparse.client.progress import Progress, show_rows
from hsparse.client.sparse.element_codec import ElementCodec, codec_of
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.optional_module import OptionalModule

T = TypeVar("T")
HTML = OptionalModule("hsparse.client.html_repr")
"""Imported on first use."""
LONG_POLL = 25
"""The maximum time, in seconds, that the server may wait for new rows before it answers a request."""
SHUFFLE, FLETCHER32 = 2, 3
NO_COMPRESSORS = (SHUFFLE, FLETCHER32, 5, 6)
"""The ids of HDF5 filters that do not count as compressors: shuffle, fletcher32, nbit and scaleoffset."""
COMPRESSORS = {1: "gzip", 4: "szip", 32000: "lzf"}
"""Maps the id of each compressor that h5py knows to its name in h5py."""


class Dataset(DatasetExtent):
    """A dataset on a server. `shape` is the last known extent, or () for a null dataspace; `refresh` updates it.

    If a dataset has lower bounds, its coordinates run from `lower` to `lower + shape`, exclusive, and negative indices
    are coordinates: `x[-5]` is the element at coordinate -5. Results are ordinary arrays.

    A read of more than `max_bytes` (initially the limit of the connection) raises an error before data are fetched. All
    methods raise the `HsparseError` that the server answers. Threads and forked processes may share a dataset; a pickle
    of a dataset has the credentials of its `Connection`.

    >>> dataset = f["X"]
    >>> dataset.name, dataset.shape, dataset.id == X.id
    ('/X', (4, 3), True)
    """

    def __init__(self, connection: Connection, record: Json, name: str | None = None) -> None:
        """`record` is the JSON of `GET /datasets/{id}`; `name` is the path by which the dataset was opened, or None."""
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
        """The dtype of the elements; it is `object` if the elements are vlen text or vlen sequences.

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
        """The number of elements in the extent, including undefined elements.

        >>> X.size, X.nnz
        (12, 4)
        """
        return 0 if self.is_null else prod(self.shape)

    @property
    def lower(self) -> tuple[int, ...]:
        """The coordinate of the first element in each dimension: 0, unless the dataset has lower bounds.

        >>> S.lower, S.shape, X.lower
        ((-2, 0), (5, 3), (0, 0))
        """
        return lower_bounds(self.shape)

    @property
    def minlower(self) -> tuple[int | None, ...]:
        """The minimum of the lower bound of each dimension, or None if the lower bound of a dimension is unlimited.

        >>> S.minlower, X.minlower
        ((None, 0), (0, 0))
        """
        limits = self.record["shape"].get("minlower") if isinstance(self.record["shape"], dict) else None
        if limits is None:
            return self.lower
        return tuple(None if limit == "H5S_UNLIMITED" else limit for limit in limits)

    @property
    def maxshape(self) -> tuple[int | None, ...]:
        """The maximum length of each dimension, or None if a dimension is unlimited.

        >>> X.maxshape
        (None, 3)
        """
        limits = self.record["shape"].get("maxdims") if isinstance(self.record["shape"], dict) else None
        if limits is None:
            return self.shape
        return tuple(None if limit in ("H5S_UNLIMITED", 0) else limit for limit in limits)

    @cached_property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the stored chunks, or None if the dataset is not chunked.

        >>> X.chunks
        (2, 3)
        """
        if self.connection.batch is not None:  # the server may choose the chunks
            self.connection.batch.send()
        layout = self.record.get("layout") or self.record.get("creationProperties", {}).get("layout") or {}
        return tuple(layout["dims"]) if "dims" in layout else None

    @cached_property
    def fillvalue(self) -> Any:
        """The value of elements that were never written; a scalar with the dtype of the dataset.

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
        """The name of the compressor, as in h5py, or None if the dataset has no compressor.

        >>> f.create_dataset("t", (5,), "f8", compression="gzip", compression_opts=7).compression
        'gzip'
        """
        found = self._compressor()
        return COMPRESSORS.get(found["id"], str(found.get("name", found["id"]))) if found else None

    @property
    def compression_opts(self) -> Any:
        """The level of gzip or the parameters of another compressor, or None if there is no compressor.

        >>> f.create_dataset("t", (5,), "f8", compression=7).compression_opts
        7
        """
        found = self._compressor()
        return found.get("level", found.get("parameters"))

    @property
    def shuffle(self) -> bool:
        """Whether the bytes of the elements are shuffled before compression.

        >>> f.create_dataset("t", (5,), "f8", compression="gzip", shuffle=True).shuffle
        True
        """
        return any(one.get("id") == SHUFFLE for one in self._filters())

    @property
    def fletcher32(self) -> bool:
        """Whether chunks are stored with HDF5's Fletcher-32 checksum.

        >>> f.create_dataset("t", (5,), "f8", fletcher32=True).fletcher32
        True
        """
        return any(one.get("id") == FLETCHER32 for one in self._filters())

    @property
    def nbytes(self) -> int:
        """The size in bytes that an array with all elements has in memory, including undefined elements.

        >>> X.nbytes
        48
        """
        return self.size * self.dtype.itemsize

    def _extent_text(self) -> str:
        """Return the text that describes the extent in a repr; it says if indices do not count from the end."""
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
            raise TypeError("A dataset without dimensions has no length: use its size instead.")
        return self.shape[0]

    def __bool__(self) -> bool:
        return not self.connection.is_closed

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("A dataset without dimensions has no rows: read its value by dataset[()].")
        return map(self.__getitem__, places_along(self.shape, 0))

    def __reversed__(self) -> Iterator[Any]:
        return map(self.__getitem__, reversed(places_along(self.shape, 0)))

    def __getitem__(self, key: Any) -> Any:
        """Return the selected elements: an array if the dataset is dense, or a sparse array if it is sparse."""
        raise NotImplementedError

    def iter_rows(
        self, count: int, start: int | None = None, stop: int | None = None, *, progress: Progress = False
    ) -> Iterator[Any]:
        """Yield the rows from `start` to `stop` in blocks of `count` rows; the last block may be shorter.

        The next block is fetched while the caller uses the current block. `progress` reports finished rows: True shows
        a bar, None shows a bar on a terminal, and a function is called with the numbers of finished and of all rows.

        >>> [(block.shape, block.nnz) for block in X.iter_rows(3)]
        [((3, 3), 3), ((1, 3), 1)]
        >>> seen = []
        >>> [block.tolist() for block in D.iter_rows(2, 1, progress=lambda done, total: seen.append((done, total)))]
        [[[3, 4, 5], [6, 7, 8]], [[9, 10, 11]]]
        >>> seen[-1]
        (3, 3)
        """
        if count < 1 or not self.shape:
            raise InvalidValue("iter_rows needs a dataset with dimensions, and a count of at least 1.")
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
        """Yield blocks of new rows whenever rows are appended, beginning with the next new row or with row `start`.

        A block has at most `count` rows. The iteration ends after `timeout` seconds without a new row; without a
        timeout, it never ends. Requests wait at the server until there are new rows (long polling).

        >>> rows = X.follow()
        >>> X.extend(2)
        slice(4, 6, None)
        >>> next(rows).shape, X.shape
        ((2, 3), (6, 3))
        """
        if not self.shape:
            raise InvalidValue("A dataset without dimensions has no rows to follow: follow another dataset.")
        last = places_along(self.refresh(), 0).stop
        return self._follow(last if start is None else start, count, timeout)

    def _follow(self, row: int, count: int | None, timeout: float | None) -> Iterator[Any]:
        left = timeout
        while True:
            own = places_along(self.shape, 0)
            row = max(own.start, min(row, own.stop))  # rows cut off by another client may be appended again
            if row < own.stop:
                rows = slice(row, own.stop if count is None else min(own.stop, row + count))
                yield self[rows]
                row, left = rows.stop, timeout
                continue
            if left is not None and left <= 0:
                return
            longest = max(1, min(LONG_POLL, int(self.connection.timeout / 2)))
            seconds = longest if left is None else min(longest, ceil(left))
            known: dict[str, tuple[int, ...]] = {"expect": self.shape}
            if isinstance(self.shape, SignedExtent):  # the extent may move by the same amount at both ends
                known["expect_lower"] = self.shape.lower
            query: Json = {name: f"[{','.join(map(str, places))}]" for name, places in known.items()}
            answer = self.connection.json("GET", self._path("shape"), wait=seconds, **query)
            self.shape = shape_of(answer["shape"]) or ()
            left = None if left is None else left - seconds

    def storage(self) -> tuple[int, int]:
        """Return a pair: the number of stored chunks, and their size in bytes.

        >>> chunks, nbytes = X.storage()
        >>> chunks, nbytes > 0
        (2, True)
        """
        record = self.connection.json("GET", f"/datasets/{self.id}", verbose=1)
        return int(record["num_chunks"]), int(record["allocated_size"])

    def _compressor(self) -> Json:
        """Return the first filter that compresses, or an empty dict if no filter compresses."""
        return next((one for one in self._filters() if one.get("id", SHUFFLE) not in NO_COMPRESSORS), {})

    def _filters(self) -> list[Json]:
        """Return the filters of all sections of a chunk, as dicts from the server's answer."""
        if self.connection.batch is not None:
            self.connection.batch.send()
        items = self.record.get("creationProperties", {}).get("filters") or []
        return [one for one in items if isinstance(one, dict)]

    def _in_region(self, select: Select, work: Callable[[Region], T]) -> T:
        def run(extent: tuple[int, ...]) -> T:
            region = select_region(select, extent)
            if any(self.maxshape[dim] != extent[dim] for dim in region.cut_off):  # or the extent has grown
                region = select_region(select, self.refresh())
            return work(region)

        return self._in_current_extent(run)
