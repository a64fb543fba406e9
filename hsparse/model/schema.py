"""What a stored record needs of who reads or writes it: a version of the schema, and named features.

    "schema": {"version": 1, "readFeatures": [], "writeFeatures": ["appends"]}

A record without it is of version 1, as are those of hsparse 0.1 and of HSDS. Who does not know the version or a
feature in `readFeatures` may do nothing with the record, its chunks included. Who does not know a feature in
`writeFeatures` may read, and change nothing. The object at `SCHEMA_KEY` says the same of the whole store.

Times of creation that clients give to links and attributes, as h5pyd 1.0 does with all of them.
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
"""A write feature: elements beyond the extent belong to an append; see `hsparse.model.dataset_state`."""
STRIPES = "stripes"
"""A read feature: the dataset's chunks are in stripes; see `hsparse.model.stripes`."""
STRIPES_IN = "stripes in "
"""What a read feature begins with: chunks are in the bucket that it names, which a server must have."""
HOME = "home "
"""What a read feature begins with: the name of the bucket that the dataset is in, see `hsparse.model.stripes`."""
CHUNK_STATISTICS = "statistics"
"""A read feature: the footers of the dataset's chunks have version 2; see `hsparse.format.chunk_spec`."""
DELTAS = "deltas"
"""A read feature: a part of the record is in an object beside it; see `hsparse.dn.record_objects`."""
VIRTUAL_DATA = "virtual"
"""A read feature: the elements are those of other datasets; the key of the record says if it `grows` with these."""
SIGNED_PLACES = "signed"
"""A read feature: the dataset has a lower bound, and chunks have signed coordinates; see `hsparse.model.dataspace`."""
READ_FEATURES = frozenset({STRIPES, CHUNK_STATISTICS, DELTAS, VIRTUAL_DATA, SIGNED_PLACES})
VERSIONS = "versions"
"""A write feature of a whole store: domains have snapshots, for which a change first keeps what was there."""
WRITE_FEATURES = frozenset({APPENDS, VERSIONS})
"""The features that came after hsparse 0.1 and are known here. A feature keeps its meaning for ever."""
MAX_FEATURES = 256


@dataclass(frozen=True, slots=True)
class Schema:
    """What a record, or a store, needs."""

    version: int = 1
    read_features: tuple[str, ...] = ()
    write_features: tuple[str, ...] = ()

    def check_readable(self, name: str, here: Collection[str] = ()) -> None:
        """Raise `Unsupported` if what is called `name` cannot be read here; `here` are features of this server."""
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
        """Raise `Unsupported` if what is called `name` cannot be changed here; it is readable."""
        for feature in self.write_features:
            if feature not in WRITE_FEATURES:
                raise Unsupported(
                    f"{name} needs the feature {feature!r} to be changed, which this hsparse does not know: "
                    "it can be read only; use a newer hsparse to change it."
                )

    @property
    def writable(self) -> bool:
        """Whether all write features are known here."""
        return WRITE_FEATURES.issuperset(self.write_features)

    def and_also(self, other: Schema) -> Schema:
        """Return what is needed for both."""
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
    """Return the features that records of the bucket `home` may have where all of these buckets are served."""
    return frozenset((f"{HOME}{home}", *(f"{STRIPES_IN}{bucket}" for bucket in buckets)))


def _missing_bucket(name: str, feature: str) -> str:
    if feature.startswith(STRIPES_IN):
        bucket = feature.removeprefix(STRIPES_IN)
        return f"{name} has chunks in the bucket {bucket!r}, which is not served here; start the server with it too."
    bucket = feature.removeprefix(HOME)
    return (
        f"{name} was made in the bucket {bucket!r}, by whose name its chunks in other buckets are found; serve it "
        "under this name, beside the others."
    )


FIRST_SCHEMA = Schema()
"""What is needed of who reads or writes the store of hsparse 0.1: nothing."""


def parse_schema(value: Any, name: str) -> Schema:
    """Return the schema in a record or store called `name`; `Corrupt` when it is none."""
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
    """Return what a record that is written here needs, None if hsparse 0.1 could read and write it."""
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
    """Return what a record needs besides `schema` if its changes are in an object beside it."""
    schema = schema or Schema()
    return replace(schema, read_features=(*schema.read_features, DELTAS))


def check_changeable(id: str, record: dict[str, Any]) -> None:
    """Raise `Unsupported` if changing the record of `id`, or chunks of it, needs a feature that is not known here."""
    if "schema" in record:
        parse_schema(record["schema"], id).check_writable(id)


PAST, FUTURE = 10.0, 300.0
"""How many seconds before and after the server's time a given time may be; others are ignored, as in HSDS."""
Json = dict[str, Any]


def given_creation_time(body: Json, now: float) -> Json:
    """Return `{"created": time}` of a link or attribute in a request, to the last digit; `{}` without a usable one.

    `now` is the server's time in seconds since the Unix epoch. `BadRequest` for what is no number.
    """
    created = body.get("created")
    if created is None:
        return {}
    if not isinstance(created, int | float) or isinstance(created, bool):
        raise BadRequest(f"created must be a time in seconds, not {created!r:.40}.")
    return {"created": created} if now - PAST <= created <= now + FUTURE else {}
