"""An upload: a domain with the bytes of a file, beside the domain that is to be made of it.

`/home/ada/run.h5.upload` has the dataset `bytes`, of as many bytes as the file, and attributes of its root group: the
file's `name` and `size`, `modified`, and `received`, how many bytes from its start are there. Whoever uploads writes
a piece, then `received`, and goes on from there after a cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from hsparse.errors import BadRequest, Conflict
from hsparse.model.dataspace import dims_of

UPLOAD = "upload://"
SUFFIX = ".upload"
BYTES = "bytes"
BYTE = "H5T_STD_U8LE"
LONGEST_NAME = 255
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Upload:
    """The file `name` of `size` bytes, in the dataset `id`; `state` identifies it and what was done to it."""

    name: str
    size: int
    id: str
    state: str

    @classmethod
    def parse(cls, path: str, root: Record, dataset: Record) -> Upload:
        """Return the upload at a path; `BadRequest` if it is none, `Conflict` if it is not whole.

        `root` is the root group with its attributes, `dataset` that of `bytes_id`.
        """
        attributes: Record = root.get("attributes") or {}
        found: Record = {name: one.get("value") for name, one in attributes.items()}
        name, size, received = found.get("name"), found.get("size"), found.get("received", 0)
        if not isinstance(name, str) or not is_file_name(name):
            raise _no_upload(
                path,
                f"its attribute name must be that of a file: 1 to {LONGEST_NAME} printed characters without /",
            )
        if not isinstance(size, int) or not isinstance(received, int):
            raise _no_upload(path, "its attributes size and received must be numbers of bytes")
        kind = dataset.get("type")
        base = kind.get("base") if isinstance(kind, dict) else kind
        if base != BYTE or dims_of(dataset["shape"]) != (size,):
            raise _no_upload(
                path, f"its dataset {BYTES} must be {size} elements of {BYTE}, one for each byte"
            )
        if received != size:
            raise Conflict(
                f"{path} has {received} of the {size} bytes of {name!r}: go on with its upload, then import it."
            )
        state = f"{root['id']} {size} {found.get('modified')} {root['lastModified']}"
        return cls(name, size, dataset["id"], sha256(state.encode()).hexdigest()[:32])


def upload_path(url: str) -> str:
    """Return the path of the domain of an upload; `BadRequest` for a URL of none."""
    path = url.removeprefix(UPLOAD)
    if not url.startswith(UPLOAD) or not path.startswith("/") or not path.endswith(SUFFIX):
        raise BadRequest(f"{url!r} names no upload; it should be like {UPLOAD}/home/ada/run.h5{SUFFIX}.")
    return path


def root_id(path: str, domain: Record) -> str:
    """Return the id of the root group of the domain at a path; `BadRequest` for a folder."""
    if domain.get("root") is None:
        raise _no_upload(path, "it is a folder")
    return str(domain["root"])


def bytes_id(path: str, root: Record) -> str:
    """Return the id of the dataset that has the bytes; `BadRequest` if the root group has none."""
    link = (root.get("links") or {}).get(BYTES) or {}
    id = str(link.get("id", ""))
    if not id.startswith("d-"):
        raise _no_upload(path, f"its root group has no dataset {BYTES}")
    return id


def is_file_name(text: str) -> bool:
    """Say whether a file may have this name."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and "/" not in text


def _no_upload(path: str, why: str) -> BadRequest:
    return BadRequest(f"{path} is no upload: {why}.")
