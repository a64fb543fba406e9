"""Checks that a listing of chunks is complete, which means that no chunks were deleted while they were listed.

A chunk that is not listed reads as the fill value, so an incomplete listing would change values. A deletion is noted in
the domain's deletion note, and a shrink in the dataset's record, before chunks are removed. A listing is therefore
complete if the note and the record show no deletion or shrink after the listing has ended.
"""

from __future__ import annotations

from contextlib import aclosing

from hsparse.errors import Gone, Moved
from hsparse.model.dataset_state import generation
from hsparse.model.ids import deletion_key, storage_key
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.crawl import RecordReader
from hsparse.wire.message import Record
from hsparse.wire.record_message import ListKeys

State = tuple[object, int]
"""A pair: a dataset's creation time, and the generation of its extent."""


async def is_deleted(owners: Owners, root: str) -> bool:
    """Return whether the objects of a root group are being deleted, or were deleted.

    The deletion note is looked up before the root group, because a deletion removes the note after the root group.
    """
    is_noted = (await owners.ask_any(ListKeys(deletion_key(root), limit=1))).keys
    return bool(is_noted) or not (await owners.ask_any(ListKeys(storage_key(root), limit=1))).keys


class ListingCheck:
    """A check that no chunks are removed during listings. Call `note` for each dataset before, and `confirm` after."""

    def __init__(self, owners: Owners, root: str) -> None:
        self._owners = owners
        self._root = root
        self._datasets: dict[str, State] = {}

    def note(self, dataset: Record) -> None:
        """Note the state of a dataset's record, before the dataset's chunks are listed."""
        self._datasets[dataset["id"]] = _state(dataset)

    async def confirm(self) -> None:
        """Raise `Gone`, `NotFound` or `Moved` if chunks may have been removed since the datasets were noted."""
        ids = {id: id for id in self._datasets}
        async with aclosing(RecordReader(self._owners, ids).batches()) as batches:
            async for batch in batches:
                for id, record in batch:
                    if _state(record) != self._datasets[id]:
                        raise Moved(f"{id} was shrunk or replaced while its chunks were listed; try again.")
        if await is_deleted(self._owners, self._root):
            raise Gone(f"The domain of {self._root} was deleted while it was read.")


def _state(record: Record) -> State:
    return record.get("created"), generation(record)
