"""Arrays of a dataset's values: one protocol over elements of a fixed size and of variable length.

A service node plans, pages, gathers and converts values through it, without distinguishing the two. Elements of a fixed
size are numpy arrays; variable-length ones are offsets and a heap (`hsparse.model.vlen_array`).
`ValueArrays.of_fields` returns the arrays of some fields of a compound, so that fields need no code of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.selections.selection import Selection
from hsparse.model.element import Element
from hsparse.model.json_values import Values, from_json
from hsparse.model.vlen_array import VlenArray, take_elements

MAX_REPEATED = 128 * 1024 * 1024
"""The most bytes that the values of a write may take once they are repeated."""
MOST_ELEMENTS = 1 << 32
"""An array of numpy may have fewer, of any size of an element; it counts no dimension of length 0."""


class ValueArrays(Protocol):
    """Operations on arrays of one dataset's values, or of some of their fields."""

    element: Element
    """What an element is."""
    fill: Any
    """The fill value, an array of no dimensions."""
    guessed_size: int
    """Bytes of an element: exact where it has a fixed size, else a guess to plan by."""
    is_exact: bool
    """Whether `guessed_size` is exact."""

    def of_fields(self, names: Sequence[str]) -> ValueArrays:
        """Return the arrays of compounds of these fields alone, packed, in that order; itself without names."""
        ...

    # --- sizes, in bytes ----------------------------------------------------------------------------

    def expected(self, count: int) -> int:
        """Return an estimate of the most that `count` elements take."""
        ...

    def least(self, count: int) -> int:
        """Return the least that `count` elements take."""
        ...

    def nbytes(self, values: Values) -> int:
        """Return the size of elements as bytes."""
        ...

    def work(self, count: int) -> int:
        """Return how many of `count` elements are processed one by one, see `hsparse.concurrency.offload.offload`."""
        ...

    # --- assembling and cutting ------------------------------------------------------------

    def received(self, values: Values) -> Values:
        """Return values from a data node in their own type: compounds travel as opaque bytes."""
        ...

    def stored(self, values: Values, shape: tuple[int, ...]) -> Values:
        """Return parsed values as stored ones, in a shape: of an array type each is one opaque element."""
        ...

    def join(self, arrays: Sequence[Values]) -> Values:
        """Return the elements of all `arrays`, (n,)."""
        ...

    def assemble(
        self, selection: Selection, planned: Sequence[PlannedChunk], read: Sequence[Values | None]
    ) -> Values:
        """Return values in the selection's shape: those `read` in their planned places, the fill value elsewhere."""
        ...

    def cut(self, selection: Selection, planned: Sequence[PlannedChunk], values: Values) -> list[Values]:
        """Return each planned chunk's own values; `values` are of the selection's shape or one for all."""
        ...

    def squeeze(self, values: Values) -> Values:
        """Return values without dimensions of length 1."""
        ...

    # --- other forms --------------------------------------------------------------------------------

    def to_json(self, values: Values) -> tuple[Any, bool]:
        """Return JSON's form (an array of numbers, for orjson), and whether it may have floats that JSON lacks."""
        ...

    def from_json(self, value: Any, shape: tuple[int, ...]) -> Values:
        """Return JSON values in `shape`, or one for all; of a single field they may be bare.

        `BadRequest` for what does not fit.
        """
        ...

    def to_bytes(self, values: Values) -> memoryview:
        """Return the elements as bytes in C order, not copied where they already are."""
        ...

    def from_bytes(self, data: Buffer, count: int, shape: tuple[int, ...]) -> Values:
        """Return the elements in such bytes, `count` of them: in `shape`, or one for all.

        `BadRequest` when there are more or fewer.
        """
        ...

    def to_region(self, selection: Selection, values: Values) -> bytes:
        """Return structured-chunk bytes of values (n,) in the selection's order, see `format.structured.region`."""
        ...

    def from_region(self, data: Buffer) -> tuple[Selection, Values]:
        """Return the selection and values of such bytes; `Corrupt` names what is wrong."""
        ...


def array_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as numpy has it: [2^31, 0, 2^31] is none, though it has no elements.

    The dimensions behind one of length 0 are left out then, of which no list is made, or all.
    """
    if 0 not in shape or prod(filter(None, shape)) < MOST_ELEMENTS:
        return shape
    kept = shape[: shape.index(0) + 1]
    return kept if prod(kept[:-1]) < MOST_ELEMENTS else (0,)


def repeat_values(arrays: ValueArrays, values: Values, shape: tuple[int, ...]) -> Values:
    """Return values of the last dimensions of `shape`, repeated over the others; one for all stays one.

    `TooLarge` if they take more than `MAX_REPEATED` bytes then.
    """
    size = prod(shape)
    if values.size == size:
        return values.reshape(array_shape(shape))
    if values.size == 1:
        return values
    nbytes = arrays.nbytes(values) * (size // values.size)
    if nbytes > MAX_REPEATED:
        raise TooLarge(
            f"The repeated values take {nbytes} bytes; the limit is {MAX_REPEATED}: write fewer at a time."
        )
    if isinstance(values, VlenArray):
        return take_elements([values], np.broadcast_to(np.arange(values.size).reshape(values.shape), shape))
    return np.broadcast_to(values, shape)


def elements_from_json(
    arrays: ValueArrays, value: Any, shape: tuple[int, ...], forms: Sequence[Element]
) -> Values:
    """Return JSON values whose elements have one of `forms`, the likeliest first, in `shape` or one for all."""
    reason = ""
    for form in forms:
        for dims in (shape, (1,)):
            try:
                return arrays.stored(from_json(value, dims, form), dims)
            except BadRequest as error:
                reason = reason or error.message
    raise BadRequest(reason)
