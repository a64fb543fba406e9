"""The schema of a whole store: an object that the first start creates, and that each start checks.

A store without the object was written by hsparse 0.1 or by HSDS: it has version 1, and no features. The object is
changed only when something is to be stored that concerns more than one record; what concerns one record stands in it
(`hsparse.model.schema`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import orjson

from hsparse.errors import Corrupt, Misconfigured, NotFound, PreconditionFailed, Unsupported
from hsparse.extension import extensions
from hsparse.model.schema import SCHEMA_KEY, VERSIONS, Schema, parse_schema
from hsparse.storage.delegating_store import ReadOnlyStore
from hsparse.storage.object_store import ObjectStore

log = logging.getLogger(__name__)


async def with_schema(
    store: ObjectStore, prepare: Callable[[ObjectStore], Awaitable[ObjectStore]]
) -> ObjectStore:
    """Return what `prepare` makes of a store, once its schema is known here; create the schema if there is none.

    `Misconfigured` if this hsparse cannot read the store. If it can only read, the store is returned read-only, and
    `prepare`, which may write, is not called.
    """
    schema = await read_schema(store)
    if schema is not None and not (schema.writable and _is_kept(schema)):
        return _read_only(store, schema)
    prepared = await prepare(store)
    if schema is None:
        try:
            await prepared.put_if_absent(SCHEMA_KEY, orjson.dumps(Schema().to_json()))
        except PreconditionFailed:
            await read_schema(store)  # another node has created it
    return prepared


async def needed_schema(stores: Iterable[ObjectStore]) -> Schema:
    """Return what opened stores need now of who reads them, and writes them if they can be written here.

    `Misconfigured` if this hsparse cannot read one.
    """
    needed = Schema()
    for store in stores:
        schema = await read_schema(store) or Schema()
        if isinstance(store, ReadOnlyStore):
            schema = replace(schema, write_features=())
        needed = needed.and_also(schema)
    return needed


async def read_schema(store: ObjectStore) -> Schema | None:
    """Return what a store needs, None if it does not say; `Misconfigured` if this hsparse cannot read it."""
    try:
        stored = await store.get(SCHEMA_KEY)
    except NotFound:
        return None
    try:
        schema = parse_schema(orjson.loads(stored.data), _name(store))
        schema.check_readable(_name(store))
    except orjson.JSONDecodeError as error:
        raise Misconfigured(
            f"{_name(store)} has a schema that is not JSON; restore it from a copy."
        ) from error
    except (Corrupt, Unsupported) as error:
        raise Misconfigured(error.message) from error
    return schema


def _read_only(store: ObjectStore, schema: Schema) -> ObjectStore:
    try:
        schema.check_writable(_name(store))
        raise Unsupported(
            f"{_name(store)} needs {VERSIONS!r} to be changed, of an extension that is not installed here: it can be "
            "read only."
        )
    except Unsupported as error:
        log.warning("%s", error.message)
        return ReadOnlyStore(store, error)


def _is_kept(schema: Schema) -> bool:
    """Say whether the extensions are here that keep what the store needs."""
    return VERSIONS not in schema.write_features or any(VERSIONS in one.features for one in extensions())


def _name(store: ObjectStore) -> str:
    return f"The store {store.name!r} ({SCHEMA_KEY})"
