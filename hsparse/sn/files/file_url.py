"""The URLs of the files of domains."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from hsparse.errors import MISSING_KINDS, Conflict, HsparseError
from hsparse.format.hdf5.plan.file_form import FileForm
from hsparse.sn.context import Context, Domain
from hsparse.sn.records.access import find_domain, normal_path
from hsparse.sn.service import Service

SUFFIX = ".h5"


async def file_domain(service: Service, path: str) -> Domain:
    """Return the domain whose file is at `/files{path}.h5`: `{path}.h5` if that exists, else `{path}`."""
    try:
        return await find_domain(service, normal_path(service, path + SUFFIX))
    except HsparseError as error:
        if error.kind not in MISSING_KINDS:
            raise
        try:
            return await find_domain(service, normal_path(service, path))
        except HsparseError as other:
            # The error is about the name in the request.
            raise (error if other.kind in MISSING_KINDS else other) from other


async def file_href(context: Context, domain: Domain, form: FileForm) -> str:
    """Return the absolute URL of the file of a domain; `Conflict` if that URL is another domain's."""
    path = domain.path.removesuffix(SUFFIX)
    if path == domain.path and (await file_domain(context.service, path)).path != domain.path:
        raise Conflict(
            f"{domain.path} has no URL as a file: {path}{SUFFIX} is another domain, whose file has that name."
        )
    request = context.request
    return f"{request.scheme}://{request.host}/files{quote(path + SUFFIX)}?{urlencode(form.params)}"


def requested_form(context: Context) -> FileForm:
    """Return the form that a request names; `BadRequest` for an unknown form."""
    return FileForm.parse(context.arg("layout"), context.arg("revision"), context.arg("matrices"))
