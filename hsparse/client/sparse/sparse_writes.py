"""Writes to a sparse dataset, which define or erase elements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.dataset import Dataset
from hsparse.client.dataset_extent import Side
from hsparse.client.errors import InvalidValue
from hsparse.client.indexing.key_items import Key
from hsparse.client.indexing.places import as_places, places_along, places_param, slab_extent
from hsparse.client.indexing.select import ArrayKey, Region, Select, select_points
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.selection_request import SelectionRequest, erase_body
from hsparse.client.sources.upload import COORDINATE_TEXT, MAX_WHOLE_BYTES, Slab, upload
from hsparse.client.sparse.sparse_values import SparseValues, Values, same_fill, sparse_values
from hsparse.errors import Conflict, HsparseError, TooLarge
from hsparse.format.selections.points import Boxes, Orthogonal, Points, Selection


class SparseWrites(Dataset):
    """The writes of `SparseDataset`. Each is durable when the method returns.

    >>> X.write([[1, 1]], [5])
    >>> X.erase(np.s_[0])
    >>> X.defined()
    array([[1, 1],
           [2, 1],
           [3, 0]], dtype=uint64)
    """

    def __setitem__(self, key: Key, values: Values) -> None:
        """Make the region equal to `values`, which are broadcast to its shape as in numpy.

        A sparse array (of scipy in any format, or `sparse.COO`) defines its stored elements and **erases** all other
        elements of the region. The erasure is a separate step: clients may see the region empty between the steps,
        and the region stays empty if the second step fails; then assign again. A dense array, or a number, defines all
        elements; `write_region(..., drop_fill=True)` omits the fill value. More than 32 MiB are sent by several
        requests. If the key selects an element twice, the last value counts. Raise `InvalidValue` for a shape or fill
        value that does not fit, and `WrongType` for a type that numpy does not cast by its rule "same_kind".

        >>> X[0] = [0, 8, 0]
        >>> X.count(np.s_[0])
        3
        >>> import scipy.sparse
        >>> X[0:2] = scipy.sparse.csr_array(([5.0], ([1], [2])), shape=(2, 3))
        >>> X.to_numpy(np.s_[0:2]), X.count(np.s_[0:2])
        (array([[0., 0., 0.],
               [0., 0., 5.]], dtype=float32), 1)
        """
        self.assign(ArrayKey(key), values)

    def assign(self, select: Select, values: Values) -> None:
        """Assign like `x[key] = values`, for any form of selection.

        >>> X.assign("[1,:]", [5, 6, 7])
        >>> X[1].toarray()
        array([5., 6., 7.], dtype=float32)
        """
        found = sparse_values(values)
        if found is None:
            self.write_region(select, values)
            return
        stored = self._checked(found)

        def send(region: Region) -> None:
            whole = stored.broadcast_to(region.shape)
            columns, column = region.locate(whole.columns, whole.values)
            if not region.selection.size:
                return
            self._erase(region.selection)
            if len(column):
                places = Elements(tuple(columns), column).coords()
                self._upload_elements(Points.trusted(region.extent, places), column)

        self._in_region(select, send)

    def write(self, coords: ArrayLike, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define the elements at `coords: (n, rank)` by `values: (n,)`; the last value of repeated coordinates counts.

        `drop_fill` omits elements that equal the fill value. Raise `OutOfRange` for coordinates outside the extent,
        `InvalidValue` unless there is one value for each coordinate, and `WrongType` as for `x[key] = values`.

        >>> X.write([[1, 0], [1, 2]], [5, 6])
        >>> X[1].toarray(), X.nnz
        (array([5., 0., 6.], dtype=float32), 6)
        """
        column = np.ascontiguousarray(self._codec.cast(values))

        def send(extent: tuple[int, ...]) -> None:
            self._upload_elements(select_points(coords, extent), column, drop_fill=drop_fill or None)

        self._in_current_extent(send)

    def write_region(self, select: Select, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define every selected element; `values` have the selection's shape, or are broadcast to it.

        If `select` is a string, a `Selection` or None, `values` may also be a list in the selection's order.

        >>> X.write_region(np.s_[1], [5, 0, 6], drop_fill=True)
        >>> X[1].toarray(), X.count(np.s_[1])
        (array([5., 0., 6.], dtype=float32), 2)
        """
        array = self._codec.cast(values)
        is_listed = select is None or isinstance(select, str | Orthogonal | Boxes | Points)

        def send(region: Region) -> None:
            fits = is_listed and array.size == prod(region.shape)
            selection = region.selection
            if not selection.size:
                return
            if array.size == 1 and isinstance(selection, Orthogonal):
                column, nbytes = np.broadcast_to(array.reshape(()), selection.shape), 0
            else:
                column = region.collect(array.reshape(region.shape) if fits else array)
                nbytes = self._element_bytes(selection)
            put = partial(self._put_region, named=select is not None, drop_fill=drop_fill or None)
            upload(selection, column, self.chunks, nbytes, put)

        self._in_region(select, send)

    def _put_region(
        self, selection: Selection, values: NDArray[Any], *, named: bool, drop_fill: bool | None
    ) -> None:
        """Define the elements of a selection by values of its shape, by one request."""
        request = SelectionRequest.of(selection, named=named)
        if request.body is not None:
            self._put_elements(selection, values.reshape(-1), drop_fill=drop_fill)
            return
        is_one = values.size > 1 and not any(values.strides)
        data = self._codec.dense(values.reshape(-1)[:1] if is_one else values)
        count = 1 if is_one else None
        params = {"select": request.select, "places": request.places, "drop_fill": drop_fill}
        self._put(data, element_count=count, **params)

    def erase(self, select: Select = None) -> None:
        """Make the selected elements undefined, or all elements, including newly appended ones, if `select` is None.

        >>> X.erase(np.s_[0, 1:])
        >>> X[0].toarray(), X.nnz
        (array([1., 0., 0.], dtype=float32), 3)
        """

        def send(region: Region) -> None:
            if region.selection.size or select is None:
                self._erase(region.selection, named=select is not None)

        self._in_region(select, send)

    def erase_points(self, coords: ArrayLike) -> None:
        """Make the elements at `coords: (n, rank)` undefined.

        >>> X.erase_points([[0, 0], [3, 0]])
        >>> X.defined()
        array([[0, 2],
               [2, 1]], dtype=uint64)
        """
        self._in_current_extent(lambda extent: self._erase(select_points(coords, extent)))

    def _erase(self, selection: Selection, *, named: bool = True) -> None:
        def send(part: Selection, _: NDArray[Any]) -> None:
            places = places_param(part.extent)
            self.connection.json("POST", self._path("erase"), erase_body(part, named=named), places=places)

        nbytes = COORDINATE_TEXT * self.ndim if isinstance(selection, Points) else 0
        upload(selection, np.broadcast_to(np.uint8(0), selection.shape), self.chunks, nbytes, send)

    def append_region(
        self, values: ArrayLike, *, axis: int = 0, drop_fill: bool = False, side: Side = "upper"
    ) -> slice:
        """Append `values` of the new part's shape, which define all of its elements; otherwise like `append`.

        >>> X.append_region([[7, 0, 8]], drop_fill=True)
        slice(4, 5, None)
        >>> X.shape, X.count(np.s_[4])
        ((5, 3), 2)
        """
        dim = self._axis(axis, self.shape)
        return self._append_slab(self._whole_slab(self._codec.cast(values), dim), dim, drop_fill, side)

    def _slab(self, block: Any, values: ArrayLike | None, count: int | None, dim: int) -> Slab:
        if values is not None:
            if count is None:
                raise InvalidValue(
                    f"Give the number of new rows along dimension {dim}: append(coords, values, count=...)."
                )
            length = count

            def placed_in(extent: tuple[int, ...]) -> NDArray[Any]:
                slab = slab_extent(extent, dim, length)
                return as_places(slab, select_points(block, slab).coords())

            places = self._in_current_extent(placed_in)
            return Slab(count, np.ascontiguousarray(self._codec.cast(values)), places)
        if count is not None:
            raise InvalidValue(
                "count= is for coords and values only, as an array's shape gives it: leave count out."
            )
        found = sparse_values(block)
        if found is None:
            return self._whole_slab(self._codec.cast(block), dim)
        stored = self._checked(found)
        if len(stored.shape) == self.ndim - 1:
            stored = stored.with_axis(dim)
        count = stored.shape[dim]

        def checked(extent: tuple[int, ...]) -> tuple[int, ...]:
            self._check_slab(stored.shape, extent, dim)
            return slab_extent(extent, dim, count)

        slab = self._in_current_extent(checked)
        coords = Elements(tuple(stored.columns), stored.values).coords()
        return Slab(count, stored.values, as_places(slab, coords))

    def _append_slab(self, slab: Slab, dim: int, drop_fill: bool, side: Side) -> slice:
        if slab.coords is None:
            return self._append_whole(np.ascontiguousarray(slab.values), slab.count, dim, drop_fill, side)
        return self._append_elements(slab.coords, slab.values, slab.count, dim, drop_fill, side)

    def _append_whole(self, array: NDArray[Any], count: int, dim: int, drop_fill: bool, side: Side) -> slice:
        def send(extent: tuple[int, ...]) -> slice:
            def fill(rows: slice) -> None:
                key = ArrayKey((*[slice(None)] * dim, rows))
                self.write_region(key, array, drop_fill=drop_fill)

            body = partial(self._codec.dense, array)
            places = places_param(extent)
            return self._append(
                array.size * self._codec.nbytes,
                body,
                fill,
                dim,
                count,
                side,
                drop_fill=drop_fill,
                places=places,
            )

        return self._in_current_extent(send)

    def _append_elements(
        self, coords: NDArray[Any], column: NDArray[Any], count: int, dim: int, drop_fill: bool, side: Side
    ) -> slice:
        def send(extent: tuple[int, ...]) -> slice:
            points = select_points(coords, slab_extent(extent, dim, count))

            def fill(rows: slice) -> None:
                places = coords.copy()
                places[:, dim] += places.dtype.type(rows.start)
                self.write(places, column, drop_fill=drop_fill)

            nbytes = points.size * self._element_bytes(points)
            body = partial(self._codec.region, points, column)
            places = places_param(extent)
            return self._append(
                nbytes, body, fill, dim, count, side, drop_fill=drop_fill, places=places, sparse=1
            )

        return self._in_current_extent(send)

    def _append(
        self,
        nbytes: int,
        body: Callable[[], bytes],
        fill: Callable[[slice], None],
        dim: int,
        count: int,
        side: Side,
        *,
        drop_fill: bool,
        **params: object,
    ) -> slice:
        """Append the values of `body()` by one request or, if they are too large, by `extend` and `fill`."""
        params |= self._on_side(side, "append_side")
        if not count:
            return self._nothing_new(dim, side)
        path = self._path("value")
        params |= {"append": count, "append_dim": dim, "drop_fill": drop_fill or None}
        if nbytes <= MAX_WHOLE_BYTES:
            with suppress(TooLarge):
                return self._grown(self.connection.json("PUT", path, body(), **params), dim)
        added = self.extend(count, dim, side=side)
        try:
            fill(added)
        except BaseException:
            with suppress(HsparseError):
                self._take_back(added, dim)
            raise
        return added

    def _take_back(self, added: slice, dim: int) -> None:
        """Undo an extension by the slice `added`; if other clients extended the dataset since, only erase it."""
        try:
            own = places_along(self.refresh(), dim)
            if own.stop == added.stop:
                rest = added.start - own.start
                self.resize((*self.shape[:dim], rest, *self.shape[dim + 1 :]), erase=True)
                return
            if own.start == added.start:
                self.drop_before(added.stop, dim)
                return
        except Conflict:
            pass
        self.erase(ArrayKey((*[slice(None)] * dim, added)))

    def _checked(self, given: SparseValues) -> SparseValues:
        """Return sparse values in the dataset's type; raise an error if the type or the fill value does not fit."""
        if not same_fill(given.fill_value, self.fillvalue):
            raise InvalidValue(
                f"The values have the fill value {given.fill_value!s}, but the dataset has {self.fillvalue!s}: "
                "give a sparse.COO with the dataset's fill value, or a dense array."
            )
        return SparseValues(given.shape, given.columns, self._codec.cast(given.values), given.fill_value)

    def _upload_elements(self, points: Points, values: NDArray[Any], **params: object) -> None:
        """Define the elements at `points` by `values: (n,)`, by as many requests as their size needs."""

        def send(part: Selection, some: NDArray[Any]) -> None:
            self._put_elements(part, some, **params)

        upload(points, values, self.chunks, self._element_bytes(points), send)

    def _element_bytes(self, selection: Selection) -> int:
        """Return the approximate bytes of an element in a request."""
        places = 0 if isinstance(selection, Orthogonal) else 8 * self.ndim
        return self._codec.nbytes + places

    def _put_elements(self, selection: Selection, values: NDArray[Any], **params: object) -> None:
        places = places_param(selection.extent)
        self._put(self._codec.region(selection, values), sparse=1, places=places, **params)

    def _put(self, body: bytes, **params: object) -> None:
        self.connection.json("PUT", self._path("value"), body, **params)
