"""Files in the store that datasets are linked to: which URIs name one, and how a file is known again."""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import BadRequest

SCHEMES = ("s3://", "file://")
"""Before them HSDS and its clients write a bucket and a key; a plain path may begin with the bucket or not."""
OBJECTS = "db"
"""Where the store keeps domains' objects: nobody's to link to, whatever the rights to them are."""
MAX_URI = 2048


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """A file as a dataset is linked to it: its URI and, where it was looked at then, what it was like.

    `etag` (empty: not looked at) is that of its state, `head` the CRC-32 of its first bytes, by which a file
    that was copied, and so has another etag, is known again.
    """

    uri: str
    etag: str = ""
    head: int = 0


def file_key(uri: str, bucket: str) -> str:
    """Return the key of the file that `uri` names in the store called `bucket`.

    `s3://bucket/key`, `file://bucket/key`, `bucket/key`, or the key alone: a path relative to the root. A
    plain path whose first component is the bucket's name begins with the bucket. `BadRequest` for another
    bucket, a path that is absolute or leads out of the root, and keys that are the server's own.
    """
    path = uri
    scheme = next((scheme for scheme in SCHEMES if uri.startswith(scheme)), "")
    if scheme:
        first, _, path = uri.removeprefix(scheme).partition("/")
        if first != bucket:
            raise BadRequest(
                f"The file {_short(uri)} is not in this store: only files in {bucket!r} can be linked to."
            )
    elif "://" in uri:
        raise BadRequest(
            f"The file {_short(uri)} is not in this store: name one in it, by {SCHEMES[0]}{bucket}/KEY or KEY."
        )
    elif uri.startswith(f"{bucket}/"):
        path = uri.removeprefix(f"{bucket}/")
    _check(uri, path)
    return path


def _check(uri: str, path: str) -> None:
    if len(uri) > MAX_URI:
        raise BadRequest(f"The file's URI has {len(uri)} characters; the limit is {MAX_URI}.")
    if path.startswith("/"):
        raise BadRequest(
            f"The file {_short(uri)} has an absolute path; name it relative to the store's root."
        )
    components = path.split("/")
    if not all(components):
        raise BadRequest(f"The file {_short(uri)} has an empty component in its path; name every one.")
    if ".." in components or "." in components:
        raise BadRequest(
            f"The file {_short(uri)} has '.' or '..' in its path; name it from the store's root."
        )
    if components[0] == OBJECTS or any(component.startswith(".") for component in components):
        raise BadRequest(f"{_short(uri)} is no file to link to: the server keeps its own objects there.")


def _short(uri: str) -> str:
    return repr(uri if len(uri) <= 120 else uri[:117] + "...")
