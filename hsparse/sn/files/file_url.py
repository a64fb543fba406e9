"""The URLs of the files of domains."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from hsparse.errors import MISSING_KINDS, HsparseError
from hsparse.format.hdf5.plan.file_form import FileForm
from hsparse.sn.records.access import find_domain
from hsparse.sn.records.domain_path import normal_path
from hsparse.sn.request import Domain, Request
from hsparse.sn.service import Service

SUFFIX = ".h5"


async def file_domain(service: Service, path: str) -> Domain:
    """Return the domain whose file is at `/files{path}`: `path` if that exists, else `path` without `.h5`."""
    path = normal_path(service, path)
    try:
        return await find_domain(service, path)
    except HsparseError as error:
        if error.kind not in MISSING_KINDS or not path.removesuffix(SUFFIX).rpartition("/")[2]:
            raise
        try:
            return await find_domain(service, path.removesuffix(SUFFIX))
        except HsparseError as other:
            # The error is about the name in the request.
            raise (error if other.kind in MISSING_KINDS else other) from other


def file_href(request: Request, domain: Domain, form: FileForm) -> str:
    """Return the absolute URL of the file of a domain."""
    http, bucket = request.http, request.service.named_bucket
    params = form.params | ({"bucket": bucket} if bucket else {})
    return f"{http.scheme}://{http.host}/files{quote(domain.path)}?{urlencode(params)}"


def requested_form(request: Request, layout: str | None = None) -> FileForm:
    """Return the form that a request names, by default with `layout`; `BadRequest` for an unknown form."""
    return FileForm.parse(request.arg("layout") or layout, request.arg("revision"), request.arg("matrices"))
