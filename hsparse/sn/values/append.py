"""Growing a dataset by what is about to be written."""

from __future__ import annotations

from dataclasses import replace

from hsparse.errors import BadRequest, Conflict
from hsparse.format.plan.grid import Grid
from hsparse.sn.context import Context
from hsparse.sn.records.dataset import Dataset, finish_trim
from hsparse.wire.record_message import SetExtent


def appended(dataset: Dataset, count: int, dim: int) -> Dataset:
    """Return the dataset as it will be when nobody else changes its extent before `grow` does.

    What is to be written is checked against it first: a bad request changes nothing.
    """
    dataset.require_writable()
    if dim >= len(dataset.extent):
        raise BadRequest(f"append_dim is {dim}; {dataset.id} has {len(dataset.extent)} dimensions.")
    extent = list(dataset.extent)
    extent[dim] += count
    return replace(dataset, extent=tuple(extent), grid=Grid(tuple(extent), dataset.spec.dims))


def still_there(grown: Dataset, now: Dataset) -> Dataset:
    """Return `grown`, to be written as the dataset is now, shrunk or not since; its part was given once.

    `Conflict` when what it grew by has been cut off again.
    """
    if any(length < before for length, before in zip(now.extent, grown.extent, strict=True)):
        raise Conflict(f"{grown.id} was shrunk while it was appended to; what was appended is outside.")
    return replace(grown, record=now.record, spec=now.spec)


async def grow(context: Context, dataset: Dataset, count: int, dim: int) -> Dataset:
    """Grow dimension `dim` by `count` elements, from whatever it is now; return the dataset as it then is.

    Two that grow at once each get their own part: the data node adds, it does not set.
    """
    owners = context.service.owners
    if "trim" in dataset.record:
        await finish_trim(owners, dataset.record)
    outcome = await owners.apply(SetExtent(dataset.id, (count,), dim))
    return Dataset.of(outcome.unwrap())
