"""From a request to its domain: the path it names, the domain's record, and whether the principal may."""

from __future__ import annotations

from functools import lru_cache

from aiohttp import web

from hsparse.errors import BadRequest, Forbidden, NotFound
from hsparse.model.acl import allowed
from hsparse.model.principal import Principal
from hsparse.model.right import Right
from hsparse.sn.context import Context, Domain
from hsparse.sn.domains.home import make_home
from hsparse.sn.service import Service

MAX_PATH = 900
"""Bytes of a path: with `/.domain.json` it must be an S3 key, which has at most 1024."""
MAX_COMPONENT = 240
PROTOCOL = "hdf5:/"
TOP = Domain("/", {"owner": "admin", "acls": {"default": {"read": True}}})
"""The folder of the top-level domains, which has no record."""


def domain_path(service: Service, request: web.Request) -> str | None:
    """Return the domain path a request names, None when it names none; checks the bucket as well.

    The path comes from `?domain=` or the header X-Hdf-domain. `hdf5:/` before it is dropped, a bucket's name
    before it is taken as the bucket, and a slash at the end is dropped.
    """
    if "host" in request.query:
        raise BadRequest("The parameter host is not supported; use domain.")
    check_bucket(service, request.query.get("bucket") or request.headers.get("X-Hdf-bucket"))
    text = request.query.get("domain") or request.headers.get("X-Hdf-domain")
    # aiohttp keeps a header's bytes that are not UTF-8 as lone surrogates, which no answer can repeat
    if not _is_unicode(request.host) or not _is_unicode(text or ""):
        raise BadRequest("The domain and the host must be UTF-8 text.")
    return normal_path(service, text) if text else None


def normal_path(service: Service, text: str) -> str:
    """Return a domain path in its normal form; `BadRequest` says what is wrong with it."""
    bucket, path = _parsed_path(text)
    check_bucket(service, bucket)
    return path


@lru_cache(maxsize=4096)
def _parsed_path(text: str) -> tuple[str | None, str]:
    """Return the bucket a domain path begins with, if any, and the path's normal form; `BadRequest`."""
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
    if text == "/db" or text.startswith("/db/"):
        raise BadRequest("/db is where the store keeps objects; choose another name.")
    return bucket, text


def check_bucket(service: Service, bucket: str | None) -> None:
    """Raise `NotFound` for a bucket that is not the one served; None is the one served."""
    if bucket and bucket.removeprefix("s3://") != service.settings.bucket:
        raise NotFound(f"The bucket {bucket!r} is not served here.")


async def find_domain(service: Service, path: str, principal: Principal | None = None) -> Domain:
    """Return the domain or folder at `path`; `NotFound` or `Gone` when there is none.

    `/home`, and the home folder of `principal`, are made when they are asked for and do not exist.
    """
    if path == "/":
        return TOP
    outcome = (await service.owners.read(path))[0]
    if outcome.failure is not None:
        made = await make_home(service, path, principal)
        if made is not None:
            return Domain(path, made)
    return Domain(path, outcome.unwrap())


async def named_domain(context: Context, right: Right) -> Domain:
    """Return the domain a request names, for handlers whose route asks for no right; checks `right`."""
    if context.path is None:
        raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
    domain = await find_domain(context.service, context.path, context.principal)
    await require(context, domain, right)
    return domain


async def require(context: Context, domain: Domain, right: Right) -> None:
    """Raise `Forbidden` when the principal does not have `right` in `domain`."""
    if not allowed(domain.record.get("acls") or {}, context.principal, right):
        raise Forbidden(f"{context.principal.name} does not have the right {right.value} in {domain.path}.")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _check_component(path: str, component: str) -> None:
    if not component:
        raise BadRequest(f"The domain's path {path!r} has an empty component ('//').")
    if component in (".", "..", ".domain.json"):
        raise BadRequest(f"The domain's path {path!r} must not have the component {component!r}.")
    if len(component.encode()) > MAX_COMPONENT:
        raise BadRequest(f"A component of the domain's path has more than {MAX_COMPONENT} bytes, the limit.")
    if any(ord(c) < 32 or ord(c) == 127 for c in component):
        raise BadRequest("The domain's path must not have control characters.")
