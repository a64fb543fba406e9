"""Checks at the creation of a file-backed dataset: the principal may read the file, if it is there."""

from __future__ import annotations

from hsparse.errors import BadRequest, Forbidden, NotFound
from hsparse.model.file_backed import CHUNKED_REF_INDIRECT, file_backed_layout
from hsparse.sn.file_backed.chunk_table import check_table
from hsparse.sn.records.access import FileRights
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import check_member
from hsparse.sn.request import Request
from hsparse.wire.file_backed_message import InspectFile
from hsparse.wire.message import Record


async def check_backing_file(request: Request, record: Record) -> None:
    """Check the backing file that the record of a new dataset names, and put the file's etag and head into it.

    All who may read the domain can then read the file's data, so the principal must have the right to read the folder
    of the file. A file that cannot be seen yet, as it is in another bucket or not there, is only noted: each reader
    needs the right to it then.
    """
    layout = file_backed_layout(record)
    if layout is None:
        return
    if record["creationProperties"].get("initializer"):
        raise BadRequest("What a file does not have reads as the fill value: leave out the initializer.")
    owners = request.service.owners
    if layout["class"] == CHUNKED_REF_INDIRECT:
        id = check_member(layout["chunk_table"], request.domain, "datasets")
        outcome = (await owners.read(id))[0]
        # h5pyd 1.0 creates a table and its dataset in one request: a read reports a table that does not exist.
        if outcome.failure is None:
            check_table(Dataset.of(outcome.unwrap()), layout, len(record["shape"]["dims"]))
    uri = layout.get("file_uri")
    if uri is not None:
        record["linkedFile"] = await _state_of(request, uri)


async def _state_of(request: Request, uri: str) -> Record:
    """Return the etag and the head of a file, or that it cannot be seen."""
    rights = FileRights.of(request)
    try:
        rights.owners_of(uri)
    except Forbidden:  # the bucket is not served
        return {"unseen": True}
    await rights.require(uri)
    try:
        found = await request.service.owners.ask_any(InspectFile(uri))
    except NotFound:
        return {"unseen": True}
    return {"etag": found.etag, "head": found.head}


def refuse_values(record: Record) -> None:
    """Raise `BadRequest` if a file-backed dataset is created with values."""
    if file_backed_layout(record) is not None:
        raise BadRequest("A dataset whose data stays in a file cannot be given values; leave them out.")
