"""Paths of domains: their normal form, and the restrictions on paths of new domains."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hsparse.errors import (
    BadRequest,
    NotFound,
)
from hsparse.model.file_backed import MAX_DOMAIN_PATH, OBJECTS_FOLDER
from hsparse.model.ids import check_bucket_name
from hsparse.model.link import PROTOCOL
from hsparse.printable import is_printable
from hsparse.sn.service import Service

MAX_COMPONENT, MAX_NEW_COMPONENT = 255, 240
"""The most bytes of a path component: in the path of any domain or served file, and in the path of a new domain."""
RECORD = ".domain.json"
"""The last component of the key of a domain's record."""


def normal_path(service: Service, text: str) -> str:
    """Return the normal form of a domain path; `BadRequest` if it is malformed, `NotFound` if in another bucket."""
    bucket, path = parsed_path(text)
    check_bucket(service, bucket)
    return path


def at_snapshot(text: str, query: Mapping[str, str]) -> str:
    """Return the path `<path>@<number>` of the snapshot in `?snapshot=`; raise `BadRequest` if it is no number."""
    number = query["snapshot"]
    if not number.isascii() or not number.isdigit() or not 0 < int(number[:10]) < 10**9:
        raise BadRequest(f"snapshot must be the number of a snapshot, not {number[:40]!r}.")
    return f"{text.removesuffix('/')}@{int(number)}"


@lru_cache(maxsize=4096)
def parsed_path(text: str) -> tuple[str | None, str]:
    """Return a pair: the bucket in a domain path or None, and the path's normal form. Raise `BadRequest` if invalid."""
    bucket = None
    if len(text) > 2 * MAX_DOMAIN_PATH:  # bounds the cache's memory
        raise BadRequest(f"The domain's path has {len(text)} characters; the limit is {MAX_DOMAIN_PATH}.")
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
    if len(text.encode()) > MAX_DOMAIN_PATH:
        raise BadRequest(f"The domain's path has {len(text.encode())} bytes; the limit is {MAX_DOMAIN_PATH}.")
    for component in text[1:].split("/"):
        _check_component(text, component)
    if text.split("/", 2)[1] == OBJECTS_FOLDER:
        raise BadRequest("/db is where the store keeps objects; choose another name.")
    return bucket, text


def check_new_path(path: str) -> None:
    """Raise `BadRequest` for a new domain's path that a case-insensitive store could take for a reserved path.

    Long components and spaces other than U+0020 are refused as well. Existing domains and files with such paths can
    still be read and deleted.
    """
    if any(len(one.encode()) > MAX_NEW_COMPONENT for one in path.split("/")):
        raise BadRequest(
            f"A component of the domain's path has more than {MAX_NEW_COMPONENT} bytes, the limit."
        )
    if not path.isprintable():
        raise BadRequest("A new domain's path can have no spaces other than U+0020: choose another name.")
    components = path.casefold().split("/")
    if components[1] == OBJECTS_FOLDER or RECORD in components:
        raise BadRequest(
            f"The domain's path {path!r} has the component /{OBJECTS_FOLDER} or {RECORD} in another case, which some "
            "file systems take for the same name; choose another one."
        )


def bucket_name(text: str) -> str:
    """Return a valid bucket name without `s3://`; raise `BadRequest` for others."""
    return check_bucket_name(text.removeprefix("s3://"))


def check_bucket(service: Service, bucket: str | None) -> None:
    """Raise `NotFound` if `bucket` is neither None nor the request's bucket, `BadRequest` if it is no valid name."""
    if bucket and bucket_name(bucket) != service.settings.bucket:
        raise NotFound(f"The bucket {bucket!r} is not the request's bucket, which links cannot leave.")


def is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _check_component(path: str, component: str) -> None:
    if not component:
        raise BadRequest(f"The domain's path {path!r} has an empty component ('//').")
    if component in (".", "..", RECORD):
        raise BadRequest(f"The domain's path {path!r} must not have the component {component!r}.")
    if len(component.encode()) > MAX_COMPONENT:
        raise BadRequest(f"A component of the domain's path has more than {MAX_COMPONENT} bytes, the limit.")
    if not is_printable(component):
        hidden = next(character for character in component if not is_printable(character))
        raise BadRequest(
            f"The domain's path has the character U+{ord(hidden):04X}, which is not printable: control characters and "
            "characters that order or join text are not allowed in paths."
        )
