"""Paths of domains: their normal form, and which a new domain may not have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hsparse.errors import (
    BadRequest,
    NotFound,
)
from hsparse.model.file_backed import OBJECTS_FOLDER
from hsparse.model.ids import check_bucket_name
from hsparse.model.link import PROTOCOL
from hsparse.sn.service import Service

MAX_PATH = 900
"""The most bytes of a path: with `/.domain.json` it must be an S3 key of at most 1024."""
MAX_COMPONENT = 240
RECORD = ".domain.json"
"""The last component of the key of a domain's record."""


def normal_path(service: Service, text: str) -> str:
    """Return a domain path in its normal form; `BadRequest` says what is wrong with it."""
    bucket, path = parsed_path(text)
    check_bucket(service, bucket)
    return path


def at_snapshot(text: str, query: Mapping[str, str]) -> str:
    """Return the path of the domain that the snapshot of `?snapshot=` is read as; `BadRequest`."""
    number = query["snapshot"]
    if not number.isascii() or not number.isdigit() or not 0 < int(number[:10]) < 10**9:
        raise BadRequest(f"snapshot must be the number of a snapshot, not {number[:40]!r}.")
    return f"{text.removesuffix('/')}@{int(number)}"


@lru_cache(maxsize=4096)
def parsed_path(text: str) -> tuple[str | None, str]:
    """Return the bucket at the start of a domain path, if any, and the normal form of the path; `BadRequest`."""
    bucket = None
    if text.startswith(PROTOCOL):
        text = "/" + text.removeprefix(PROTOCOL).lstrip("/")
    if not text.startswith("/"):
        bucket, slash, rest = text.partition("/")
        if not slash:
            raise BadRequest(f"The domain {text!r} must be an absolute path, such as /home/user/file.h5.")
        text = "/" + rest
    if text == "/":
        return bucket, text
    text = text.removesuffix("/")
    if not is_unicode(text):
        raise BadRequest("The domain's path is not valid Unicode: it has a lone surrogate.")
    if len(text.encode()) > MAX_PATH:
        raise BadRequest(f"The domain's path has {len(text.encode())} bytes; the limit is {MAX_PATH}.")
    for component in text[1:].split("/"):
        _check_component(text, component)
    if text.split("/", 2)[1] == OBJECTS_FOLDER:
        raise BadRequest("/db is where the store keeps objects; choose another name.")
    return bucket, text


def check_not_reserved(path: str) -> None:
    """Raise `BadRequest` for a new domain's path that a store without case could take for one of its own.

    Domains that have such a path already are read and deleted as before.
    """
    components = path.casefold().split("/")
    if components[1] == OBJECTS_FOLDER or RECORD in components:
        raise BadRequest(
            f"The domain's path {path!r} has the component /{OBJECTS_FOLDER} or {RECORD} in other letters, which some "
            "file systems take for the same; choose another name."
        )


def bucket_name(text: str) -> str:
    return check_bucket_name(text.removeprefix("s3://"))


def check_bucket(service: Service, bucket: str | None) -> None:
    """Raise `NotFound` for another bucket than that of the request; None is that one.

    `BadRequest` for a name that no bucket can have.
    """
    if bucket and bucket_name(bucket) != service.settings.bucket:
        raise NotFound(f"The bucket {bucket!r} is not that of the request: links stay in one bucket.")


def is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _check_component(path: str, component: str) -> None:
    if not component:
        raise BadRequest(f"The domain's path {path!r} has an empty component ('//').")
    if component in (".", "..", RECORD):
        raise BadRequest(f"The domain's path {path!r} must not have the component {component!r}.")
    if len(component.encode()) > MAX_COMPONENT:
        raise BadRequest(f"A component of the domain's path has more than {MAX_COMPONENT} bytes, the limit.")
    if not component.isprintable():
        hidden = next(character for character in component if not character.isprintable())
        raise BadRequest(
            f"The domain's path has the character U+{ord(hidden):04X}, which is not printed: control characters, those "
            "that order or join text, and spaces but U+0020 are not allowed in paths."
        )
