"""Finishing a shrink: erasing what lies outside the new extent, so that growing again shows nothing old."""

from __future__ import annotations

from contextlib import suppress

from hsparse.concurrency.gather import gather_all
from hsparse.errors import Moved
from hsparse.model.objid import chunk_key
from hsparse.sn.objects.dataset import Dataset
from hsparse.sn.owners import Owners
from hsparse.sn.values.chunk_fanout import list_chunks
from hsparse.wire.chunk_message import TrimChunks
from hsparse.wire.message import Record
from hsparse.wire.record_message import EndTrim


async def finish_trim(owners: Owners, record: Record) -> None:
    """Erase what lies outside the extent in `record`, then note that it is done; durable when it returns.

    First a fence on every data node: from then on writes planned for the larger extent are refused, and
    those accepted before are stored, so that the listing finds them. `Moved` says that another request has
    finished this, or shrunk the dataset further: it may have grown and been written since.
    """
    dataset = Dataset.of(record)
    with suppress(Moved):
        await _trim(owners, dataset)


async def _trim(owners: Owners, dataset: Dataset) -> None:
    spec, extent = dataset.spec, dataset.extent
    await owners.ask_all(TrimChunks(spec, extent, ()))
    existing = await list_chunks(owners, dataset)
    outside = [
        tuple(scaled)
        for scaled in existing.tolist()
        if any((i + 1) * dim > length for i, dim, length in zip(scaled, spec.dims, extent, strict=True))
    ]
    await gather_all(
        [
            node.send(TrimChunks(spec, extent, tuple(outside[i] for i in some)))
            for node, some in owners.split(outside, lambda scaled: chunk_key(dataset.id, scaled))
        ]
    )
    await owners.apply(EndTrim(dataset.id, spec.generation))
