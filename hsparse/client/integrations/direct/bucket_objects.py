"""Objects of a bucket, read with the user's own credentials by obstore (the extra `direct`)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from hsparse.client.errors import InvalidValue
from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectPlace,
    ObjectReader,
    ObjectUnavailable,
)
from hsparse.optional_module import OptionalModule

OBSTORE = OptionalModule("obstore", "direct")
STORES = OptionalModule("obstore.store", "direct")
AT_ONCE = 16
MAX_RETRIES = 3
RETRY_TIME = timedelta(seconds=10)
"""Limits of obstore's retries, after which the server reads the object; obstore's default time is 3 minutes."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """An S3 bucket and how to reach it; obstore takes fields that are None from AWS's environment variables.

    `endpoint` is the URL of a service other than AWS. A pickle of a bucket contains the secret.
    """

    name: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.endpoint is not None and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise InvalidValue(
                f"{self.endpoint!r} is not the URL of an S3 service; it is like https://s3.example.org."
            )

    def options(self) -> dict[str, Any]:
        """Return the options of obstore's `S3Store`."""
        given = {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "session_token": self.session_token,
        }
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        options["retry_config"] = {"max_retries": MAX_RETRIES, "retry_timeout": RETRY_TIME}
        if self.endpoint is not None and self.endpoint.startswith("http://"):
            options["client_options"] = {"allow_http": True}
        return options


_PROCESSES: dict[str, int] = {}
"""The id of the process that used obstore first; a forked process inherits the entry."""


class BucketObjects(ObjectReader):
    """Reads the objects of a bucket; a process that unpickles the reader creates its own obstore client.

    A forked process leaves all reads to the server: obstore's threads do not survive a fork, so its calls would hang.
    """

    def __init__(self, bucket: Bucket, at_once: int = AT_ONCE) -> None:
        self.bucket = bucket
        self.at_once = at_once
        OBSTORE.load()  # a missing extra is reported before anything is read

    def read(self, place: ObjectPlace) -> bytes:
        if os.getpid() != _PROCESSES.setdefault("first", os.getpid()):
            raise ObjectUnavailable("obstore cannot be used after a fork: start workers by spawn")
        obstore = OBSTORE.load()
        errors = obstore.exceptions
        try:
            found = obstore.get(self._store, place.key, options={"if_match": f'"{place.etag}"'})
            data: bytes = found.bytes().to_bytes()
        except (errors.PreconditionError, errors.NotFoundError, FileNotFoundError):
            raise ObjectChanged(place.key) from None
        except (errors.BaseError, OSError) as error:
            raise ObjectUnavailable(f"{place.key}: {type(error).__name__}") from error
        if str(found.meta["e_tag"]).strip('"') != place.etag:  # a service that ignores If-Match
            raise ObjectChanged(place.key)
        return data

    def close(self) -> None:
        self.__dict__.pop("_store", None)

    @cached_property
    def _store(self) -> Any:
        return STORES.load().S3Store(self.bucket.name, **self.bucket.options())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_store"}
