"""Reductions of a dataset (sum, mean, ...); the server computes them, so that only the result is transferred.

If the server does not support a reduction, or if it exceeds a limit of the server, the client computes it in blocks.
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
"""The HTTP statuses that a server may answer if it has no route for reductions."""
RESULT_BYTES = 16
"""The bytes that one element of a result uses: in the answer and in the array together."""


class ReducedDataset(Dataset):
    """The methods for reductions of dense and sparse datasets; undefined elements count as the fill value.

    >>> D.mean(), D.max(axis=1), X.sum(axis=(0, 1))
    (np.float64(5.5), array([ 2,  5,  8, 11]), np.float32(10.0))
    """

    source: ValueSource
    has_undefined = False
    _reduces_here = False
    """Whether the client computes reductions, because the server is known not to support reductions."""

    def sum(self, axis: Axis = None, **numpy: None) -> Any:
        """Return the sum over one, several or all axes: an array of the remaining axes, or a number, as in numpy.

        Sums of integers are exact, and raise `InvalidValue` if a sum exceeds 64 bits. `numpy.sum(X)` calls this method;
        its arguments `dtype` and `out` are not supported.

        >>> X.sum(), X.sum(axis=0)
        (np.float32(10.0), array([5., 3., 2.], dtype=float32))
        """
        return self._reduced("sum", axis, numpy=numpy)

    def mean(self, axis: Axis = None, **numpy: None) -> Any:
        """Return the mean over one, several or all axes: an array of the remaining axes, or a number.

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
        """Return the smallest value over one, several or all axes: an array of the remaining axes, or a number.

        >>> X.min(), D.min(axis=0)
        (np.float32(0.0), array([0, 1, 2]))
        """
        return self._reduced("min", axis, numpy=numpy)

    def max(self, axis: Axis = None, **numpy: None) -> Any:
        """Return the largest value over one, several or all axes: an array of the remaining axes, or a number.

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
        """Reduce the selected elements in one request; return a dict that maps each operation's name to its result.

        An integer index in `select` keeps its dimension. With `undefined="skip"`, undefined elements are skipped; with
        "fill", they count as the fill value. `by` groups the first axis by labels: it is the path of a dataset of
        labels, or a list with one label for each index, or None for an index in no group. Then the axis of a result has
        an element for each group, and the result `group` has the labels. `field` is the field of a compound type to
        reduce. The `min` or `max` of no elements is the fill value.

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
                raise InvalidValue("A reduction must select each axis on its own: give no paired lists.")
            if not axes and extent:
                raise InvalidValue("axis is empty: name an axis, or omit axis to reduce all axes.")
            if ddof not in (0, 1):
                raise InvalidValue(f"ddof must be 0 or 1, not {ddof!r}.")
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
        """Return the reductions of complex numbers; they combine the reductions of real and imaginary parts."""
        for name in operations:
            if name not in COMPLEX_OPERATIONS:
                raise WrongType(f"{name} does not support complex numbers: read the values by to_numpy().")
        real, imaginary = (self.reduce(*operations, field=field, **options) for field in COMPLEX)
        for name in operations:
            if name == "var":
                real[name] = real[name] + imaginary[name]
            elif name in ("sum", "mean"):
                real[name] = real[name] + 1j * imaginary[name]
        return real

    def _ask(self, body: Json, shape: tuple[int, ...], places: str | None) -> dict[str, Array] | None:
        """Return the server's result, or None if the server cannot compute it; `shape` is the shape without groups."""
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
        """Return whether an error means that the server lacks reductions; if this is certain, set `_reduces_here`."""
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
        """Compute a reduction in the client; return the result that a server would return for the request body."""
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
        """Raise `ResultTooLarge` if a result of this shape exceeds the memory limit `max_bytes`."""
        check_size(prod(shape) * RESULT_BYTES, self.max_bytes, shape)

    def _reduced(
        self,
        name: Operation,
        axis: Axis,
        ddof: int = 0,
        undefined: Undefined = "fill",
        numpy: Mapping[str, None] | None = None,
    ) -> Any:
        """Return the result of one operation, with the dtype that numpy would return."""
        if given := [option for option, value in (numpy or {}).items() if value is not None]:
            raise InvalidValue(f"{name} of a dataset does not support the argument {given[0]}: omit it.")
        if name != "count" and self.dtype.kind not in "biufc":
            what = "variable length" if self.type.is_vlen else str(self.dtype)
            raise WrongType(f"{name} does not support values of {what}: read the values by to_numpy().")
        if name in ("min", "max") and not prod(
            self.shape[one] for one in reduced_axes(axis, len(self.shape))
        ):
            raise InvalidValue(f"{name} needs at least one element, but the dataset or axis is empty.")
        found = self.reduce(name, axis=axis, ddof=ddof, undefined=undefined)[name]
        if self.dtype.kind in "fc" and name != "count":
            wanted = self.dtype if name != "var" else np.zeros(0, self.dtype).real.dtype
            found = found.astype(wanted.newbyteorder("="), copy=False)
        return found[()]

    def _result_type(self, name: str, field: str | None) -> np.dtype[Any]:
        """Return the dtype that the result of an operation has in the server's answer."""
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
        """Return a dict that maps each operation to its array in a binary answer (little-endian, concatenated)."""
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
    """Return the axes as non-negative numbers, or all axes if `axis` is None; raise `NoSuchAxis` if out of range."""
    given = range(rank) if axis is None else (axis,) if isinstance(axis, int | np.integer) else tuple(axis)
    for one in given:
        if not -rank <= one < rank:
            raise NoSuchAxis(f"There is no axis {one}: the dataset has only {rank} dimensions.")
    return tuple(dict.fromkeys(int(one) % rank for one in given))
