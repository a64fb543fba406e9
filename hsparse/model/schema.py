"""The schema version and the named features that a program must know to read or change a stored record.

    "schema": {"version": 1, "readFeatures": [], "writeFeatures": ["appends"]}

A record without a schema, as written by hsparse 0.1 and HSDS, has version 1 and needs no feature. A program that does
not know the version or one of `readFeatures` must not use the record or its chunks. A program that does not know one of
`writeFeatures` may only read them. The object at `SCHEMA_KEY` has the schema of the whole store.

The module also checks creation times that clients give for links and attributes, as h5pyd 1.0 does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.model.layout import has_statistics, stripes_of
from hsparse.model.stripes import bucket_of

SCHEMA_KEY = "db/.schema.json"
SCHEMA_VERSION = 1
APPENDS = "appends"
"""Write feature: elements beyond the extent belong to appends in progress; see `hsparse.model.dataset_state`."""
STRIPES = "stripes"
"""Read feature: the dataset's chunks are striped; see `hsparse.model.stripes`."""
STRIPES_IN = "stripes in "
"""Prefix of a read feature that names another bucket with chunks of the dataset, which the server must serve."""
HOME = "home "
"""Prefix of a read feature that names the dataset's own bucket; see `hsparse.model.stripes`."""
CHUNK_STATISTICS = "statistics"
"""Read feature: the footers of the dataset's chunks have version 2; see `hsparse.format.chunk_spec`."""
DELTAS = "deltas"
"""Read feature: a part of the record is stored in a second object; see `hsparse.dn.record_objects`."""
VIRTUAL_DATA = "virtual"
"""Read feature, and a key of the record: the dataset is virtual and maps elements of other datasets."""
SIGNED_PLACES = "signed"
"""Read feature: the dataset has a lower bound, so chunks have signed coordinates; see `hsparse.model.dataspace`."""
READ_FEATURES = frozenset({STRIPES, CHUNK_STATISTICS, DELTAS, VIRTUAL_DATA, SIGNED_PLACES})
VERSIONS = "versions"
"""Write feature of a whole store: domains have snapshots, so a change must first preserve the previous objects."""
WRITE_FEATURES = frozenset({APPENDS, VERSIONS})
"""The write features that this version knows. The meaning of a feature never changes."""
MAX_FEATURES = 256


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema version and the features that a record, or a whole store, needs."""

    version: int = 1
    read_features: tuple[str, ...] = ()
    write_features: tuple[str, ...] = ()

    def check_readable(self, name: str, here: Collection[str] = ()) -> None:
        """Raise `Unsupported` if a server with the bucket features `here` cannot read the record or store `name`."""
        if self.version > SCHEMA_VERSION:
            raise Unsupported(
                f"{name} has version {self.version} of the store's schema, and this hsparse knows version "
                f"{SCHEMA_VERSION}; use a newer hsparse."
            )
        for feature in self.read_features:
            if feature not in READ_FEATURES and feature not in here:
                if feature.startswith((STRIPES_IN, HOME)):
                    raise Unsupported(_missing_bucket(name, feature))
                raise Unsupported(
                    f"{name} needs the feature {feature!r} to be read, which this hsparse does not know; "
                    "use a newer hsparse."
                )

    def check_writable(self, name: str) -> None:
        """Raise `Unsupported` if this server does not know a write feature of the record or store `name`."""
        for feature in self.write_features:
            if feature not in WRITE_FEATURES:
                raise Unsupported(
                    f"{name} needs the feature {feature!r} to be changed, which this hsparse does not know: "
                    "it can be read only; use a newer hsparse to change it."
                )

    @property
    def writable(self) -> bool:
        """Whether this version knows all write features."""
        return WRITE_FEATURES.issuperset(self.write_features)

    def and_also(self, other: Schema) -> Schema:
        """Return the schema with the later of the two versions and the features of both schemas."""
        return Schema(
            max(self.version, other.version),
            tuple(dict.fromkeys((*self.read_features, *other.read_features))),
            tuple(dict.fromkeys((*self.write_features, *other.write_features))),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the value of the key `schema` in a record."""
        return {
            "version": self.version,
            "readFeatures": list(self.read_features),
            "writeFeatures": list(self.write_features),
        }


def bucket_features(home: str, buckets: Collection[str]) -> frozenset[str]:
    """Return the read features known to a server of `buckets` for records in the bucket `home`."""
    return frozenset((f"{HOME}{home}", *(f"{STRIPES_IN}{bucket}" for bucket in buckets)))


def _missing_bucket(name: str, feature: str) -> str:
    if feature.startswith(STRIPES_IN):
        bucket = feature.removeprefix(STRIPES_IN)
        return f"{name} has chunks in the bucket {bucket!r}, which is not served here: add it to --bucket."
    bucket = feature.removeprefix(HOME)
    return (
        f"{name} was created in the bucket {bucket!r}, and its chunks in other buckets are stored under this name; "
        "serve the bucket under this name, together with the other buckets."
    )


FIRST_SCHEMA = Schema()
"""The schema of a store of hsparse 0.1: version 1, without features."""


def parse_schema(value: Any, name: str) -> Schema:
    """Return the schema in the JSON of a record or store called `name`; raise `Corrupt` if it is malformed."""
    found = value if isinstance(value, dict) else {}
    version = found.get("version")
    features = found.get("readFeatures", []), found.get("writeFeatures", [])
    if not isinstance(version, int) or isinstance(version, bool) or not all(map(_is_features, features)):
        raise Corrupt(f"{name} has a schema of an unknown form: {str(value)[:200]}; restore it from a copy.")
    return Schema(version, tuple(features[0]), tuple(features[1]))


def _is_features(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_FEATURES
        and all(isinstance(feature, str) for feature in value)
    )


def schema_of(record: dict[str, Any]) -> Schema | None:
    """Return the schema to write into a record, or None if the record needs no feature."""
    needed = (
        has_statistics(record),
        VIRTUAL_DATA in record,
        "lower" in record.get("shape", ()),
    )
    others = compress((CHUNK_STATISTICS, VIRTUAL_DATA, SIGNED_PLACES), needed)
    reading = (*_of_stripes(record), *others)
    writing = (APPENDS,) if APPENDS in record else ()
    return Schema(read_features=reading, write_features=writing) if reading or writing else None


def _of_stripes(record: dict[str, Any]) -> tuple[str, ...]:
    stripes = stripes_of(record)
    if isinstance(stripes, int):
        return (STRIPES,) * (stripes > 1)
    buckets = dict.fromkeys(map(bucket_of, stripes))
    home: str = record["layout"]["bucket"]
    return (STRIPES, *(f"{STRIPES_IN}{bucket}" for bucket in buckets), f"{HOME}{home}")


def with_deltas(schema: Schema | None) -> Schema:
    """Return `schema` with the feature `DELTAS` added."""
    schema = schema or Schema()
    return replace(schema, read_features=(*schema.read_features, DELTAS))


def check_changeable(id: str, record: dict[str, Any]) -> None:
    """Raise `Unsupported` if changing the record of `id`, or its chunks, needs an unknown write feature."""
    if "schema" in record:
        parse_schema(record["schema"], id).check_writable(id)


PAST, FUTURE = 10.0, 300.0
"""How many seconds a client's creation time may be before and after the server's; as in HSDS, others are ignored."""
Json = dict[str, Any]


def given_creation_time(body: Json, now: float) -> Json:
    """Return `{"created": time}` of a link or attribute in a request, unrounded; `{}` if it has no usable time.

    `now` is the server's time in seconds since the Unix epoch. Raises `BadRequest` if the time is not a number.
    """
    created = body.get("created")
    if created is None:
        return {}
    if not isinstance(created, int | float) or isinstance(created, bool):
        raise BadRequest(f"created must be a number of seconds since 1970, not {created!r:.40}.")
    return {"created": created} if now - PAST <= created <= now + FUTURE else {}
