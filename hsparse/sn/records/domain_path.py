"""Paths of domains: the one that a request names, its normal form, and which a new domain may not have."""

from __future__ import annotations

from functools import lru_cache

from aiohttp import web

from hsparse.errors import BadRequest, NotFound
from hsparse.model.bucket import check_bucket_name
from hsparse.model.file_backed import OBJECTS_FOLDER
from hsparse.model.link import PROTOCOL
from hsparse.sn.service import Service

MAX_PATH = 900
"""The most bytes of a path: with `/.domain.json` it must be an S3 key of at most 1024."""
MAX_COMPONENT = 240
RECORD = ".domain.json"
"""The last component of the key of a domain's record."""


def request_place(service: Service, request: web.BaseRequest) -> tuple[Service, str | None]:
    """Return the service of the bucket that a request names, and its domain path, None without one.

    The path is that of `?domain=` or of the header X-Hdf-domain. A leading `hdf5:/` and a trailing slash are dropped.
    The bucket is that in front of the path, else that of `?bucket=` or of the header X-Hdf-bucket; without one it is
    the first. `NotFound` for a bucket that is not served, `BadRequest` for what no bucket can be called.
    """
    if "host" in request.query:
        raise BadRequest("The parameter host is not supported; use domain.")
    named = request.query.get("bucket") or request.headers.get("X-Hdf-bucket")
    text = request.query.get("domain") or request.headers.get("X-Hdf-domain")
    # aiohttp decodes bytes of a header that are not UTF-8 to lone surrogates, which no answer can contain
    if not _is_unicode(request.host) or not _is_unicode(text or ""):
        raise BadRequest("The domain and the host must be UTF-8 text.")
    name = _bucket_name(named) if named else None
    if not text:
        return (service.of_bucket(name) if name else service), None
    in_front, path = _parsed_path(text)
    name = _bucket_name(in_front) if in_front else name
    return (service.of_bucket(name) if name else service), path


def normal_path(service: Service, text: str) -> str:
    """Return a domain path in its normal form; `BadRequest` says what is wrong with it."""
    bucket, path = _parsed_path(text)
    check_bucket(service, bucket)
    return path


@lru_cache(maxsize=4096)
def _parsed_path(text: str) -> tuple[str | None, str]:
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
    if not _is_unicode(text):
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


def _bucket_name(text: str) -> str:
    return check_bucket_name(text.removeprefix("s3://"))


def check_bucket(service: Service, bucket: str | None) -> None:
    """Raise `NotFound` for another bucket than that of the request; None is that one.

    `BadRequest` for a name that no bucket can have.
    """
    if bucket and _bucket_name(bucket) != service.settings.bucket:
        raise NotFound(f"The bucket {bucket!r} is not that of the request: links stay in one bucket.")


def _is_unicode(text: str) -> bool:
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
