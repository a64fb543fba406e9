"""Linking a new dataset to a file in the store: is the file there, and may the principal have it read?"""

from __future__ import annotations

from hsparse.errors import BadRequest, Unsupported
from hsparse.model.file_backed import CHUNKED_REF_INDIRECT, file_backed_layout
from hsparse.sn.context import Context
from hsparse.sn.file_backed.chunk_table import check_table
from hsparse.sn.records.access import FileRights
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import check_member
from hsparse.wire.file_backed_message import InspectFile
from hsparse.wire.message import Record

LOCATOR = "chunklocator"


async def check_backing_file(context: Context, record: Record) -> None:
    """Check what a new dataset's record is linked to, and note in it what the file is like.

    The file must be there. Its data becomes readable by all who may read the domain, so the principal must have
    the right to read where it is.
    """
    layout = file_backed_layout(record)
    if layout is None:
        return
    if record["creationProperties"].get("initializer"):
        raise BadRequest("What a file does not have reads as the fill value: leave out the initializer.")
    owners = context.service.owners
    if layout["class"] == CHUNKED_REF_INDIRECT:
        id = check_member(layout["chunk_table"], context.domain, "datasets")
        outcome = (await owners.read(id))[0]
        # h5pyd 1.0 creates a table and what refers to it with one request: a missing one is found by the read.
        if outcome.failure is None:
            check_table(Dataset.of(outcome.unwrap()), layout, len(record["shape"]["dims"]))
    uri = layout.get("file_uri")
    if uri is not None:
        await FileRights(owners, context.principal, context.service.settings.bucket).require(uri)
        found = await owners.ask_any(InspectFile(uri))
        record["linkedFile"] = {"etag": found.etag, "head": found.head}


def refuse_locator(properties: Record) -> None:
    """Raise `Unsupported` for a chunk table that the server is to fill from the file."""
    initializer = properties.get("initializer")
    name = initializer[0] if isinstance(initializer, list) and initializer else initializer
    if name == LOCATOR:
        raise Unsupported(
            f"The initializer {LOCATOR} is not supported: let the client list the chunks (hsload --link, not "
            "--fastlink)."
        )


def refuse_values(record: Record) -> None:
    """Raise `BadRequest` for values that a linked dataset is to be created with."""
    if file_backed_layout(record) is not None:
        raise BadRequest("A dataset whose data stays in a file cannot be given values; leave them out.")
