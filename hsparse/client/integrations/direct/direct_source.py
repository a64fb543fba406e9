"""Choose the source of stored chunks for direct reads: a directory, a bucket, presigned URLs, the server, or none."""

from __future__ import annotations

from pathlib import Path

from hsparse.client.connection import Connection, Json
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.integrations.direct.bucket_objects import Bucket, BucketObjects
from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.integrations.direct.directory_objects import DirectoryObjects, is_store
from hsparse.client.integrations.direct.kept_map import KeptMap
from hsparse.client.integrations.direct.object_reader import LEAST_PART, ReadStatistics
from hsparse.client.integrations.direct.reader_choice import GivenReader, OfferedReader, ReaderChoice
from hsparse.client.integrations.direct.server_objects import ServerObjects
from hsparse.client.sources.elements import Direct, ValueSource
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import BadRequest
from hsparse.model.file_backed import has_no_objects
from hsparse.model.layout import CHUNKED, STRUCTURED, class_elsewhere

SCHEME = "s3://"
SERVER = "server"
WHOLE_ELSEWHERE = 4000
"""The maximum number of chunks in a grid whose whole map a remote server is asked for in one request: about 1 MB."""


def direct_source(
    connection: Connection, record: Json, direct: Direct, server: ValueSource
) -> DirectElements | None:
    """Return a source that decodes a dataset's chunks in this process, or None if the server must decode them.

    `record` is the dataset's record, `server` the source of values that cannot be read directly. No request is sent.
    Raise `BadRequest` for a directory without a store, and `Misconfigured` if an extra is missing.
    """
    choice = _choice(connection, record["id"], direct)
    extent = shape_of(record["shape"])
    kind = Hdf5Type.parse(record["type"])
    if choice is None or extent is None or kind.is_vlen or not _has_objects(record):
        return None
    statistics = ReadStatistics()
    dims = record["layout"]["dims"] if extent else ()  # a scalar's one chunk has no dimensions
    is_here = connection.is_here
    whole = None if is_here or direct is not None else WHOLE_ELSEWHERE
    kept = KeptMap(connection, record["id"], dims, statistics, signed=direct is True, whole=whole)
    least = (LEAST_PART if is_here else ServerObjects.least_part) if direct is None else 0.0
    return DirectElements(server, kept, choice, kind.wire, statistics, least)


def _has_objects(record: Json) -> bool:
    """Return whether all values are stored in chunk objects or are the fill value."""
    properties = record.get("creationProperties") or {}
    stored = (record.get("layout") or {}).get("class")
    elsewhere = class_elsewhere(record) or properties.get("initializer") or has_no_objects(record)
    return stored in (CHUNKED, STRUCTURED) and not elsewhere


def _choice(connection: Connection, id: str, direct: Direct) -> ReaderChoice | None:
    if direct is False:
        return None
    if connection.snapshot is not None:  # its chunks have no object keys of their own
        return OfferedReader(False, ServerObjects(connection, id))
    if isinstance(connection, EmbeddedConnection) and (direct is None or direct is True):
        return GivenReader(DirectoryObjects(connection.root))
    if direct is True:
        return OfferedReader(required=True)
    if direct is None:
        return OfferedReader(connection.is_here, ServerObjects(connection, id))
    if direct == SERVER:
        return GivenReader(ServerObjects(connection, id))
    if isinstance(direct, str) and direct.startswith(SCHEME):
        direct = Bucket(direct.removeprefix(SCHEME).strip("/"))
    if isinstance(direct, Bucket):
        return GivenReader(BucketObjects(direct))
    root = Path(direct).absolute()
    if not is_store(root):
        raise BadRequest(
            f"{str(root)!r} is no directory of a store on this machine; name the one that the server has as --root."
        )
    return GivenReader(DirectoryObjects(root))
