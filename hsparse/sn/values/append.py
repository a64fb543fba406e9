"""Appending: how a dataset grows by what a write adds at its end.

Tests: tests/sn/values/test_values.py, tests/sn/values/test_vlen_values.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hsparse.errors import BadRequest, Conflict
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.axis import Span
from hsparse.format.selections.selection import Orthogonal, Selection
from hsparse.sn.context import Context
from hsparse.sn.records.dataset import Dataset, finish_trim
from hsparse.wire.record_message import SetExtent


@dataclass(frozen=True, slots=True)
class Append:
    """Grow dimension `dim` by `count` elements, then write there."""

    count: int
    dim: int

    def preview(self, dataset: Dataset) -> Dataset:
        """Return the dataset as `grow` will leave it, unless its extent changes before.

        The values are checked against it before `grow`, so that a bad request changes nothing.
        """
        dataset.require_writable()
        if self.dim >= len(dataset.extent):
            raise BadRequest(f"append_dim is {self.dim}; {dataset.id} has {len(dataset.extent)} dimensions.")
        extent = list(dataset.extent)
        extent[self.dim] += self.count
        return replace(dataset, extent=tuple(extent), grid=Grid(tuple(extent), dataset.spec.dims))

    async def grow(self, context: Context, dataset: Dataset) -> Dataset:
        """Grow the stored dataset from its current extent; return it as it is then.

        Concurrent appends get separate parts: the data node adds `count`, it does not set an extent.
        """
        owners = context.service.owners
        if "trim" in dataset.record:
            await finish_trim(owners, dataset.record)
        outcome = await owners.apply(SetExtent(dataset.id, (self.count,), self.dim))
        return Dataset.of(outcome.unwrap())

    def selection(self, extent: tuple[int, ...]) -> Selection:
        """Return the last `count` places along `dim` of an extent that has grown."""
        axes = [Span.range(0, length) for length in extent]
        axes[self.dim] = Span.range(extent[self.dim] - self.count, extent[self.dim])
        return Orthogonal(extent, tuple(axes))


def parse_append(count: Any, dim: Any) -> Append | None:
    """Return the append of a request, None without one; `BadRequest` unless both are non-negative integers."""
    if count is None or count is False:
        return None
    for name, value in (("append", count), ("append_dim", dim or 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadRequest(f"{name} must be a non-negative integer, not {value!r}.")
    return Append(count, dim or 0)


def with_current_record(grown: Dataset, current: Dataset) -> Dataset:
    """Return `grown` with the record of `current`, for a write that is sent again.

    The extent stays that of `grown`: it names the part that this append was given. `Conflict` if a shrink has cut
    it off since.
    """
    if any(length < before for length, before in zip(current.extent, grown.extent, strict=True)):
        raise Conflict(f"{grown.id} was shrunk while it was appended to; what was appended is outside.")
    return replace(grown, record=current.record, spec=current.spec)
