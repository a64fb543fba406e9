"""Reads of a sparse dataset: as elements, as dense values, and as the arrays of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hsparse.client.dataset import Dataset
from hsparse.client.errors import InvalidValue
from hsparse.client.indexing.indexed_region import IndexedRegion
from hsparse.client.indexing.places import as_places, places_param
from hsparse.client.indexing.select import Region, Select, select_points
from hsparse.client.memory_limit import ResultLimit, check_size
from hsparse.client.progress import Progress, show_read
from hsparse.client.sources.elements import ValueSource
from hsparse.client.sources.selection_request import count_defined, read_defined
from hsparse.client.sparse.banded_csr import row_bands
from hsparse.client.sparse.sparse_result import (
    SparseResult,
    bytes_of_dense,
    bytes_of_result,
    fills_with_zero,
    in_native_order,
)
from hsparse.format.selections.points import Orthogonal
from hsparse.optional_module import OptionalModule

FRAME = OptionalModule("hsparse.client.sparse.frame_array", "scipy")
ENCODED_SELECTION = OptionalModule("hsparse.format.selections.encoded_selection")

HIGH_LIMIT = 1 << 30
"""If `max_bytes` is at least this, elements are read without counting them first, which is faster."""

if TYPE_CHECKING:
    from pyarrow import Table
    from sparse import COO


class SparseReads(Dataset):
    """The reads of `SparseDataset`: each reads a selection by one request, however many chunks it spans.

    >>> places, values = X.read(np.s_[:3])
    >>> places.shape, values.shape
    ((3, 2), (3,))
    """

    source: ValueSource

    def read(self, select: Select = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the defined elements of the selection, each once: coordinates (n, rank) uint64 and values (n,).

        With lower bounds the coordinates are int64, and the first element is at the bounds. A server returns the
        elements chunk by chunk, row-major inside each chunk.

        >>> places, values = X.read(np.s_[0:2])
        >>> places, values
        (array([[0, 0],
               [0, 2]], dtype=uint64), array([1., 2.], dtype=float32))
        """

        def get(region: Region) -> tuple[NDArray[Any], NDArray[Any]]:
            limit = self._limit(region, self._codec.nbytes + 8 * self.ndim)
            found = self.source.defined_elements(region.selection, limit)
            return as_places(region.extent, found.coords()), self.type.unpack(found.values)

        return self._in_region(select, get)

    def read_dense(self, select: Select = None) -> NDArray[Any]:
        """Return every selected value in the selection's shape, with the fill value for undefined elements.

        >>> X.read_dense(np.s_[2:, 0]), X.read_dense("[2:4,0]").shape
        (array([0., 4.], dtype=float32), (2, 1))
        """

        return self._in_region(select, self._dense)

    def read_points(self, coords: ArrayLike) -> NDArray[Any]:
        """Return the values (n,) at `coords: (n, rank)`, in order, with the fill value for undefined elements.

        >>> X.read_points([[3, 0], [3, 1]])
        array([4., 0.], dtype=float32)
        """

        def get(extent: tuple[int, ...]) -> NDArray[Any]:
            places = select_points(coords, extent).coords()
            check_size(bytes_of_dense((len(places),), self._codec.nbytes), self.max_bytes, (len(places),))
            body = places.astype("<u8").tobytes()
            path = self._path("value")
            data = bytearray(self.connection.binary("POST", path, body, places=places_param(extent)))
            return self.type.decode(data, (len(places),))

        return self._in_current_extent(get)

    def defined(self, select: Select = None) -> NDArray[Any]:
        """Return the coordinates of the defined elements of the selection, (n, rank), in the form and order of `read`.

        >>> X.defined(np.s_[2:])
        array([[2, 1],
               [3, 0]], dtype=uint64)
        """

        def get(region: Region) -> NDArray[Any]:
            if (limit := self._limit(region, 8 * self.ndim)) is not None:
                limit.check(region.selection.size)
            data = read_defined(self.connection, self.id, region.selection, named=select is not None)
            return as_places(region.extent, ENCODED_SELECTION.load().decode_selection(data).coords())

        return self._in_region(select, get)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all values, so that numpy's functions do not read the dataset row by row."""
        if copy is False:
            raise ValueError("copy=False is impossible: the values are on a server, so numpy gets a copy.")
        return np.asarray(self.to_numpy(), dtype)

    def to_scipy(self, format: str = "csr", key: Select = ..., *, progress: Progress = None) -> Any:
        """Return the selected elements as a sparse array of scipy: in any `format` for rank 2, and in "coo" for rank 1.

        Raise `InvalidValue` for other ranks, or if the fill value is not 0. `progress` is as in `to_numpy`.

        >>> columns = X.to_scipy("csc", np.s_[:, [0, 2]])
        >>> columns.format, columns.indptr, columns.data
        ('csc', array([0, 2, 3], dtype=int32), array([1., 4., 2.], dtype=float32))
        """

        def get(region: Region) -> Any:
            if len(region.shape) not in (1, 2) or not fills_with_zero(self.dtype, self.fillvalue):
                raise InvalidValue(
                    f"scipy has no sparse array of the shape {list(region.shape)} of {self.dtype} with the fill value "
                    f"{self.fillvalue!s}: take to_coo()."
                )
            with self._shown(progress, region):
                return self._csr(region)

        return self._in_region(key, get).asformat(format)

    def to_coo(self, key: Select = ..., *, progress: Progress = None) -> COO:
        """Return the selected elements as a `sparse.COO` of any rank, with the dataset's fill value.

        >>> X.to_coo(np.s_[2:])
        <COO: shape=(2, 3), dtype=float32, nnz=2, fill_value=0.0>
        """
        return self._sparse(key, progress).to_coo()

    def to_arrow(self, key: Select = ..., *, progress: Progress = None) -> Table:
        """Return the selected elements as a `pyarrow.Table`: their positions in `dim_0`, `dim_1`, ..., and `value`.

        >>> X.to_arrow().to_pydict()
        {'dim_0': [0, 0, 2, 3], 'dim_1': [0, 2, 1, 0], 'value': [1.0, 2.0, 3.0, 4.0]}
        """
        return self._sparse(key, progress).to_arrow()

    def to_numpy(self, key: Select = ..., *, progress: Progress = None) -> NDArray[Any]:
        """Return all selected values as a dense array, with the fill value for undefined elements.

        By default a terminal shows a bar during a long read, if tqdm or rich is installed. `progress` may be a function
        of the bytes of values received and their total, True (always a bar) or False (no bar). If progress is shown,
        the elements are counted first, by one more request.

        >>> X.to_numpy(), X.to_numpy(np.s_[3, :2])
        (array([[1., 0., 2.],
               [0., 0., 0.],
               [0., 3., 0.],
               [4., 0., 0.]], dtype=float32), array([4., 0.], dtype=float32))
        >>> seen = []
        >>> values = X.to_numpy(progress=lambda done, total: seen.append((done, total)))
        >>> seen[-1]
        (16, 16)
        """

        def get(region: Region) -> NDArray[Any]:
            check_size(bytes_of_dense(region.shape, self._codec.nbytes), self.max_bytes, region.shape)
            with self._shown(progress, region):
                return self._dense(region) if self.type.is_vlen else self._elements(region).to_numpy()

        return self._in_region(key, get)

    def _result(self, region: Region) -> Any:
        """Return the result of `x[key]`, where `region` is the region of the key."""
        if not region.shape:
            return self._dense(region)[()]
        if self.type.is_vlen:  # no package has sparse arrays of vlen elements
            return self._dense(region)
        has_zeros = fills_with_zero(self.dtype, self.fillvalue)
        if has_zeros and len(region.shape) == 2:
            found = self._csr(region)
            return found if self.ndim == 2 else FRAME.load().FrameArray(found)
        found = self._elements(region)
        if not has_zeros or not (len(region.shape) == 1 and self.ndim == 2):
            return found.to_coo()
        return in_native_order(found.to_numpy()) if region.is_list and region.size else found.to_csr()

    def _dense(self, region: Region) -> NDArray[Any]:
        """Return every value of a region in the region's order; raise `ResultTooLarge` if there are too many."""
        check_size(bytes_of_dense(region.shape, self._codec.nbytes), self.max_bytes, region.shape)
        return self.type.unpack(region.arrange(self.source.dense_values(region.selection)))

    def _csr(self, region: Region) -> Any:
        """Return a region of rank 1 or 2 whose fill value is 0 as a sparse array of scipy; a `csr_array` for rank 2."""
        limit = self._limit(region)
        matrix = self._rows(region, limit)
        return self._placed(region, limit).to_csr() if matrix is None else matrix

    def _sparse(self, select: Select, progress: Progress) -> SparseResult:
        def get(region: Region) -> SparseResult:
            with self._shown(progress, region):
                return self._elements(region)

        return self._in_region(select, get)

    def _shown(self, progress: Progress, region: Region) -> AbstractContextManager[None]:
        """Show the progress of the read of a region while the context is open."""
        selection, itemsize = region.selection, self._codec.nbytes
        return show_read(
            progress,
            self.name or self.id,
            selection.size * itemsize,
            lambda: count_defined(self.connection, self.id, selection) * itemsize,
        )

    def _elements(self, region: Region) -> SparseResult:
        """Return the defined elements of a region at their positions in the result; `ResultTooLarge` if too many."""
        return self._placed(region, self._limit(region, self._codec.nbytes + 8 * len(region.shape)))

    def _placed(self, region: Region, limit: ResultLimit | None) -> SparseResult:
        found = self.source.defined_elements(region.selection, limit)
        columns, values = region.place(found.columns, found.values)
        bands: Sequence[int] = ()
        if self.chunks and len(region.shape) == 2:
            bands = row_bands(found.columns[0], self.chunks[0], self.shape[0])
        found_values, fill = self.type.unpack(values), self.fillvalue
        if self.type.inner:
            return SparseResult.of_arrays(region.shape, columns, found_values, fill)
        return SparseResult(region.shape, columns, found_values, fill, bands)

    def _rows(self, region: Region, limit: ResultLimit | None) -> Any:
        """Return a region of a matrix as a `csr_array`, or None if the source cannot return its compressed rows."""
        orders = region.orders() if isinstance(region, IndexedRegion) else None
        if orders is None or len(orders) != 2:
            return None
        assert isinstance(region.selection, Orthogonal)
        found = self.source.compressed_rows(region.selection, limit)
        if found is None:
            return None
        matrix = found.to_scipy()
        rows, columns = orders
        matrix = matrix if rows is None else matrix[rows]
        if columns is not None:
            matrix = matrix[:, columns]
            matrix.sort_indices()
        return matrix

    def _limit(self, region: Region, each: int | None = None) -> ResultLimit | None:
        """Return the limit for the elements of a region, or None if no check is necessary during the read.

        An element takes `each` bytes, by default as many as in scipy's arrays. A low `max_bytes` is checked now, by one
        request that counts the elements. With a high `max_bytes`, elements are counted only after many were read.
        """
        selected = region.selection.size

        def nbytes(count: int) -> int:
            repeated = -(-count * region.size // selected)
            if each is None:
                return bytes_of_result(region.shape, repeated, self._codec.nbytes)
            return repeated * each

        if not region.size or nbytes(selected) <= self.max_bytes:
            return None
        count = partial(count_defined, self.connection, self.id, region.selection)
        limit = ResultLimit(nbytes, self.max_bytes, region.shape, count)
        if self.max_bytes >= HIGH_LIMIT:
            return limit
        limit.check(selected)
        return None
