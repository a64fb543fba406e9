"""Reductions of a dataset (sum, mean, ...), computed by the server, so that only the result is transferred.

Reductions that the server does not support, or that exceed its limits, are computed by the client, block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.dataset import Dataset
from hsparse.client.errors import InvalidValue, NoSuchAxis, NotImplementedHere, ResultTooLarge, WrongType
from hsparse.client.indexing.places import places_param
from hsparse.client.indexing.select import Select, select_region
from hsparse.client.memory_limit import check_size
from hsparse.client.sources.elements import ValueSource
from hsparse.client.types.datatype import COMPLEX
from hsparse.errors import HsparseError, NotFound
from hsparse.format.selections.points import Orthogonal
from hsparse.format.selections.select_syntax import format_select
from hsparse.optional_module import OptionalModule

Operation: TypeAlias = Literal["count", "nnz", "sum", "mean", "var", "min", "max"]
Undefined: TypeAlias = Literal["skip", "fill"]
Axis: TypeAlias = int | Sequence[int] | None
Array: TypeAlias = NDArray[Any]
BLOCKS = OptionalModule("hsparse.client.block_reduction")
GROUP = "group"
COMPLEX_OPERATIONS = ("count", "sum", "mean", "var")
NOT_FOUND, NO_ROUTE = 404, (405, 501)
"""HTTP statuses of a server that does not know a route."""
RESULT_BYTES = 16
"""The size of one element of a result in bytes, in the answer and as an array."""


class ReducedDataset(Dataset):
    """The reduction methods of dense and sparse datasets; undefined elements count as the fill value.

    >>> D.mean(), D.max(axis=1), X.sum(axis=(0, 1))
    (np.float64(5.5), array([ 2,  5,  8, 11]), np.float32(10.0))
    """

    source: ValueSource
    has_undefined = False
    _reduces_here = False
    """Whether the server is known to lack reductions, so that the client computes them."""

    def sum(self, axis: Axis = None, **numpy: None) -> Any:
        """Return the sum over one, several or all axes, as numpy does: an array of the other axes, or a number.

        Integer sums are exact; one that exceeds 64 bits raises `InvalidValue`. `numpy.sum(X)` works, without `dtype`
        and `out`.

        >>> X.sum(), X.sum(axis=0)
        (np.float32(10.0), array([5., 3., 2.], dtype=float32))
        """
        return self._reduced("sum", axis, numpy=numpy)

    def mean(self, axis: Axis = None, **numpy: None) -> Any:
        """Return the mean over one, several or all axes; see `sum`.

        >>> X.mean(axis=0)
        array([1.25, 0.75, 0.5 ], dtype=float32)
        """
        return self._reduced("mean", axis, numpy=numpy)

    def var(self, axis: Axis = None, *, ddof: int = 0, **numpy: None) -> Any:
        """Return the variance over one, several or all axes; the divisor is the number of elements minus `ddof`.

        >>> X.var(), D.var(axis=0, ddof=1)
        (np.float32(1.8055556), array([15., 15., 15.]))
        """
        return self._reduced("var", axis, ddof, numpy=numpy)

    def min(self, axis: Axis = None, **numpy: None) -> Any:
        """Return the smallest value over one, several or all axes; see `sum`.

        >>> X.min(), D.min(axis=0)
        (np.float32(0.0), array([0, 1, 2]))
        """
        return self._reduced("min", axis, numpy=numpy)

    def max(self, axis: Axis = None, **numpy: None) -> Any:
        """Return the largest value over one, several or all axes; see `sum`.

        >>> X.max(axis=1)
        array([2., 0., 3., 4.], dtype=float32)
        """
        return self._reduced("max", axis, numpy=numpy)

    def reduce(
        self,
        *operations: Operation,
        axis: Axis = None,
        select: Select = None,
        by: str | Sequence[Any] | None = None,
        undefined: Undefined = "fill",
        field: str | None = None,
        ddof: int = 0,
    ) -> dict[str, Array]:
        """Return the result of each operation on the selected elements by its name, from one request.

        An integer index in `select` keeps its dimension. `undefined` says whether undefined elements are skipped
        ("skip") or count as the fill value ("fill"). `by` groups the first axis by labels: the path of a dataset, or a
        list with one label (None: no group) for each index. The result then has one place for each group, and the
        labels as `group`. `field` is the field of compounds to reduce. A `min` or `max` of no elements is the fill
        value.

        >>> X.reduce("mean", "count", axis=0, undefined="skip")
        {'mean': array([2.5, 3. , 2. ]), 'count': array([2, 1, 1])}
        >>> X.reduce("sum", axis=0, by=["T", "B", "B", "T"])
        {'group': array(['B', 'T'], dtype='<U1'), 'sum': array([[0., 3., 0.],
               [5., 0., 2.]])}
        """

        if self.dtype.kind == "c" and field is None:
            return self._of_complex(
                operations, axis=axis, select=select, by=by, undefined=undefined, ddof=ddof
            )

        def run(extent: tuple[int, ...]) -> dict[str, Array]:
            axes = reduced_axes(axis, len(extent))
            selection = select_region(select, extent).selection
            if not isinstance(selection, Orthogonal):
                raise InvalidValue("A reduction needs a product of axes, without paired lists, as selection.")
            if not axes and extent:
                raise InvalidValue("axis is empty: name an axis, or leave axis out for all axes.")
            if ddof not in (0, 1):
                raise InvalidValue("ddof must be 0 or 1.")
            shape = tuple(length for dim, length in enumerate(selection.shape) if dim not in axes)
            self._check_result(shape)
            body: Json = {"op": list(operations), "undefined": undefined, "ddof": ddof}
            body["select"] = format_select(selection, orthogonal=True)
            if extent:
                body["axis"] = list(axes)
            if field is not None:
                body["field"] = field
            if by is not None:
                body["by"] = by if isinstance(by, str) else np.asarray(by, object).tolist()
            found = None if self._reduces_here else self._ask(body, shape, places_param(extent))
            return self._reduce_here(body, selection, axes) if found is None else found

        return self._in_current_extent(run)

    def _of_complex(self, operations: Sequence[Operation], **options: Any) -> dict[str, Array]:
        """Return reductions of complex numbers, combined from reductions of the real and imaginary parts."""
        for name in operations:
            if name not in COMPLEX_OPERATIONS:
                raise WrongType(f"Complex numbers have no {name} here; read them with to_numpy().")
        real, imaginary = (self.reduce(*operations, field=field, **options) for field in COMPLEX)
        for name in operations:
            if name == "var":
                real[name] = real[name] + imaginary[name]
            elif name in ("sum", "mean"):
                real[name] = real[name] + 1j * imaginary[name]
        return real

    def _ask(self, body: Json, shape: tuple[int, ...], places: str | None) -> dict[str, Array] | None:
        """Return the server's result, or None if it does not reduce; `shape` is that of a result without groups."""
        path, field = self._path("reduce"), body.get("field")
        try:
            if "by" not in body:
                return self._parsed(
                    self.connection.binary("POST", path, body, places=places), body["op"], shape, field
                )
            answer = self.connection.json("POST", path, body, places=places)
        except (ResultTooLarge, NotImplementedHere):  # the client may have enough memory
            return None
        except HsparseError as error:
            if self._has_no_route(error, body):
                return None
            raise
        values = answer["value"]
        found: dict[str, Array] = {
            name: np.array(values[name], self._result_type(name, field)).reshape(tuple(answer["shape"]))
            for name in body["op"]
        }
        return {GROUP: np.array(answer["groups"]), **found}

    def _has_no_route(self, error: HsparseError, body: Json) -> bool:
        """Return whether an error means that the server lacks reductions; remember it, if that is certain."""
        if error.status == NOT_FOUND:  # the route, the dataset or the labels are missing
            try:
                self.connection.json("GET", f"/datasets/{self.id}")
            except NotFound:
                return False
            self._reduces_here = not isinstance(body.get("by"), str)
            return True
        self._reduces_here = error.status in NO_ROUTE
        return self._reduces_here

    def _reduce_here(self, body: Json, selection: Orthogonal, axes: Sequence[int]) -> dict[str, Array]:
        """Return the result computed by the client, equal to a server's answer to the body."""
        reduction = BLOCKS.load().BlockReduction(
            self,
            selection,
            body["op"],
            axes,
            by=body.get("by"),
            field=body.get("field", ""),
            fills=body["undefined"] == "fill",
            ddof=body["ddof"],
        )
        found: dict[str, Array] = reduction.run()
        return found if reduction.labels is None else {GROUP: np.array(reduction.labels), **found}

    def _check_result(self, shape: tuple[int, ...]) -> None:
        """Raise `ResultTooLarge` if a result of this shape exceeds the client's memory limit."""
        check_size(prod(shape) * RESULT_BYTES, self.max_bytes, shape)

    def _reduced(
        self,
        name: Operation,
        axis: Axis,
        ddof: int = 0,
        undefined: Undefined = "fill",
        numpy: Mapping[str, None] | None = None,
    ) -> Any:
        """Return one reduction, in the dtype that numpy returns."""
        if given := [option for option, value in (numpy or {}).items() if value is not None]:
            raise InvalidValue(f"{name} of a dataset has no {given[0]}: apply it to the result with numpy.")
        if name != "count" and self.dtype.kind not in "biufc":
            what = "variable length" if self.type.is_vlen else str(self.dtype)
            raise WrongType(f"Values of {what} have no {name}; read them with to_numpy().")
        if name in ("min", "max") and not prod(
            self.shape[one] for one in reduced_axes(axis, len(self.shape))
        ):
            raise InvalidValue(f"There is no {name} of no elements.")
        found = self.reduce(name, axis=axis, ddof=ddof, undefined=undefined)[name]
        if self.dtype.kind in "fc" and name != "count":
            wanted = self.dtype if name != "var" else np.zeros(0, self.dtype).real.dtype
            found = found.astype(wanted.newbyteorder("="), copy=False)
        return found[()]

    def _result_type(self, name: str, field: str | None) -> np.dtype[Any]:
        """Return the dtype of an operation's result in the server's answer."""
        # `element` has the fields of complex numbers too.
        dtype = self.type.element.dtype[field] if field is not None else self.dtype
        if name in ("count", "nnz"):
            return np.dtype("i8")
        if name in ("mean", "var"):
            return np.dtype("f8")
        if name == "sum":
            return np.dtype({"f": "f8", "u": "u8"}.get(dtype.kind, "i8"))
        return dtype.newbyteorder("=")

    def _parsed(
        self, data: bytes, operations: Sequence[str], shape: tuple[int, ...], field: str | None
    ) -> dict[str, Array]:
        """Return the arrays of a binary answer, which are little-endian and concatenated."""
        found: dict[str, Array] = {}
        first = 0
        for name in operations:
            dtype = self._result_type(name, field)
            last = first + prod(shape) * dtype.itemsize
            values = np.frombuffer(data[first:last], dtype.newbyteorder("<"))
            found[name] = values.astype(dtype).reshape(shape)
            first = last
        return found


def reduced_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """Return the axes as non-negative numbers, all of them for None; raise `NoSuchAxis` for one out of range."""
    given = range(rank) if axis is None else (axis,) if isinstance(axis, int | np.integer) else tuple(axis)
    for one in given:
        if not -rank <= one < rank:
            raise NoSuchAxis(f"There is no axis {one}; the dataset has {rank} dimensions.")
    return tuple(dict.fromkeys(int(one) % rank for one in given))
