"""The schema of a whole store: an object that the first start creates and every start checks.

A store without this object was written by hsparse 0.1 or by HSDS, and has version 1 and no features. The object changes
only with formats that concern several records; a single record has its own schema (`hsparse.model.schema`).
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
    """Check that this hsparse supports the schema of a store, and return `prepare(store)`; create a missing schema.

    If this hsparse cannot read the store, raise `Misconfigured`. If it can read but not write the store, return the
    store as a read-only store; then `prepare`, which may write, is not called.
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
    """Return the combined schema of opened stores, without the features that only writers of read-only stores need.

    Raises `Misconfigured` if this hsparse cannot read one of the stores.
    """
    needed = Schema()
    for store in stores:
        schema = await read_schema(store) or Schema()
        if isinstance(store, ReadOnlyStore):
            schema = replace(schema, write_features=())
        needed = needed.and_also(schema)
    return needed


async def read_schema(store: ObjectStore) -> Schema | None:
    """Return the schema of a store, or None if the store has none; raise `Misconfigured` if the store is unreadable."""
    try:
        stored = await store.get(SCHEMA_KEY)
    except NotFound:
        return None
    try:
        schema = parse_schema(orjson.loads(stored.data), _name(store))
        schema.check_readable(_name(store))
    except orjson.JSONDecodeError as error:
        raise Misconfigured(
            f"{_name(store)} has a damaged schema, which is not JSON; restore the object from a backup."
        ) from error
    except (Corrupt, Unsupported) as error:
        raise Misconfigured(error.message) from error
    return schema


def _read_only(store: ObjectStore, schema: Schema) -> ObjectStore:
    try:
        schema.check_writable(_name(store))
        raise Unsupported(
            f"{_name(store)} is read-only here, because the extension that maintains its feature {VERSIONS!r} is not "
            "installed: install the extension to change the store."
        )
    except Unsupported as error:
        log.warning("%s", error.message)
        return ReadOnlyStore(store, error)


def _is_kept(schema: Schema) -> bool:
    """Return whether an extension that maintains the feature `VERSIONS` is installed, if the store has this feature."""
    return VERSIONS not in schema.write_features or any(VERSIONS in one.features for one in extensions())


def _name(store: ObjectStore) -> str:
    return f"The store {store.name!r} ({SCHEMA_KEY})"
