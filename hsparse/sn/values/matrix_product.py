"""Handler of `/datasets/{id}/product`: a two-dimensional dataset times a small dense matrix, as scores of a PCA are.

Only the matrix and the result travel. Elements are read page by page and added up in double precision, row by row in
the order of the chunks: with n elements in a row the error is at most n 2^-53 times the sum of the products' absolute
values.

Tests: tests/sn/values/test_matrix_product.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from aiohttp import hdrs, web
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.plan.pages import pages
from hsparse.format.selections import axis as ax
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.sn.context import Context
from hsparse.sn.http.json_pieces import encode_nulls, items_of, respond_pieces
from hsparse.sn.http.request import BINARY_TYPE, named_types, read_json_object
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.defined_read import DefinedRead
from hsparse.sn.values.reduction.reduce_request import FILL, check_undefined
from hsparse.sn.values.request_selection import ascending_selection, selection_work

Matrix = NDArray[np.float64]
BLOCK = 1 << 20
"""Numbers of the products that are added up at a time."""
KEYS = frozenset({"matrix", "select", "undefined"})


async def post_product(context: Context) -> web.StreamResponse:
    """`POST /datasets/{id}/product`: the selected rows and columns times the matrix in the body."""
    body = await _read(context)
    select, undefined = (
        body.get("select", context.arg("select")),
        body.get("undefined", context.arg("undefined")),
    )
    check_undefined(undefined)

    async def multiply(dataset: Dataset) -> web.StreamResponse:
        _check(dataset, undefined)
        work = selection_work({"select": select})
        selection = await offload(work, ascending_selection, select, dataset.extent, "a product")
        matrix = await offload(len(body["matrix"]), _matrix, body["matrix"], selection.shape[1])
        nbytes = selection.shape[0] * matrix.shape[1] * matrix.itemsize
        most = context.service.settings.max_request_size
        if nbytes > most:
            raise TooLarge(
                f"The product has {selection.shape[0]} x {matrix.shape[1]} numbers, more than {most} bytes "
                "(max_request_size): select fewer rows at a time."
            )
        async with context.service.answers.hold(2 * nbytes + 2 * matrix.nbytes + 4 * 8 * BLOCK):
            product = _Product(context, dataset, selection, matrix)
            found = await (product.sparse(undefined) if dataset.spec.sparse else product.dense())
            return await _answer(context, found)

    return await until_current(context, multiply)


async def _read(context: Context) -> dict[str, Any]:
    """Return a body's keys: a binary one is the matrix alone."""
    if BINARY_TYPE in named_types(context.request, hdrs.CONTENT_TYPE):
        return {"matrix": await context.body()}
    body = await read_json_object(context)
    unknown = set(body) - KEYS
    if unknown or "matrix" not in body:
        wrong = f"Unknown key {min(unknown)[:40]!r}" if unknown else "There is no matrix"
        raise BadRequest(f"{wrong} in the body; known are {', '.join(sorted(KEYS))}.")
    return body


def _check(dataset: Dataset, undefined: str | None) -> None:
    """Raise `BadRequest` for a dataset that is no matrix of numbers, or whose undefined elements have no value."""
    if len(dataset.extent) != 2:
        raise BadRequest(f"A product is that of a matrix; {dataset.id} has {len(dataset.extent)} dimensions.")
    if not dataset.arrays.is_exact or dataset.dtype.subdtype is not None or dataset.dtype.kind not in "biuf":
        raise BadRequest(f"The elements of {dataset.id} are no numbers: there is no product.")
    if not dataset.spec.sparse:
        return
    if undefined is None:
        raise BadRequest("Say what becomes of undefined elements: undefined=skip or undefined=fill.")
    if undefined == FILL and not np.isfinite(dataset.fill):
        raise BadRequest(f"The fill value is {dataset.fill}: with undefined=fill there is no product.")


def _matrix(given: Any, rows: int) -> Matrix:
    """Return the matrix of a body: bytes of doubles, row-major and little-endian, or nested lists."""
    if isinstance(given, bytearray):
        count, rest = divmod(len(given), 8 * rows) if rows else (0, len(given))
        if rest:
            raise BadRequest(
                f"The matrix has {len(given)} bytes, no multiple of 8 times the {rows} columns selected."
            )
        given = np.frombuffer(given, "<f8").reshape(rows, count)
    try:
        matrix = np.array(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        matrix = np.zeros(0)
    if matrix.ndim != 2 or len(matrix) != rows:
        raise BadRequest(
            f"matrix must be a list of {rows} rows, one for each column selected, all of one length."
        )
    if not matrix.shape[1]:
        raise BadRequest("matrix has no columns: the product would have none.")
    return matrix


class _Product:
    """One product; the selection's axes ascend, each index once."""

    def __init__(self, context: Context, dataset: Dataset, selection: Orthogonal, matrix: Matrix) -> None:
        self._chunks = ChunkFanout(context.service.owners, dataset)
        self._page_size = context.service.settings.page_size
        self._dataset = dataset
        self._selection = selection
        self._matrix = matrix
        self._result = np.zeros((selection.shape[0], matrix.shape[1]))

    async def sparse(self, undefined: str | None) -> Matrix:
        """Return the product; elements that are not defined have the fill value, or count for nothing."""
        fill = float(self._dataset.fill) if undefined == FILL else 0.0
        if fill:
            self._result += fill * self._matrix.sum(axis=0)
        async for (rows, columns), values in DefinedRead(self._dataset, self._chunks, self._page_size).pieces(
            self._selection
        ):
            assert isinstance(values, np.ndarray)
            await offload(values.size * self._matrix.shape[1], self._add, rows, columns, values, fill)
        return self._result

    async def dense(self) -> Matrix:
        """Return the product."""
        most = max(1, self._page_size // self._dataset.dtype.itemsize)
        for part in pages(self._selection, self._dataset.grid, most):
            assert isinstance(part, Orthogonal)
            values = (await self._chunks.read(part)).view(self._dataset.dtype).reshape(part.shape)
            await offload(values.size * self._matrix.shape[1], self._add_block, part, values)
        return self._result

    def _add(self, rows: NDArray[Any], columns: NDArray[Any], values: NDArray[Any], fill: float) -> None:
        """Add elements, of which those of a row follow one another in each chunk."""
        row_axis, column_axis = self._selection.axes
        count = max(1, BLOCK // max(1, self._matrix.shape[1]))
        for first in range(0, len(values), count):
            some = slice(first, first + count)
            at = ax.positions(row_axis, rows[some])
            products = self._matrix[ax.positions(column_axis, columns[some])]
            begins = np.flatnonzero(np.diff(at, prepend=-1))
            with np.errstate(invalid="ignore", over="ignore"):
                products *= (values[some].astype(np.float64) - fill)[:, None]
                np.add.at(self._result, at[begins], np.add.reduceat(products, begins))

    def _add_block(self, part: Orthogonal, values: NDArray[Any]) -> None:
        rows, columns = (
            ax.positions(whole, ax.indices(some))
            for whole, some in zip(self._selection.axes, part.axes, strict=True)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            self._result[rows] += values.astype(np.float64) @ self._matrix[columns]


async def _answer(context: Context, found: Matrix) -> web.StreamResponse:
    """Answer in binary, doubles, row-major and little-endian; or in JSON."""
    if BINARY_TYPE in named_types(context.request, hdrs.ACCEPT):
        return web.Response(body=found.astype("<f8").tobytes(), content_type=BINARY_TYPE)
    answer = {"shape": list(found.shape), "value": found}
    return await respond_pieces(items_of(found.shape), answer, encode_nulls)
