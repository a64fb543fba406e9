"""Uploads: an upload is a domain that contains the bytes of a file, so that the file can be imported later.

`/home/ada/run.h5.upload` has a dataset `bytes`, with one element per byte of the file. Attributes of its root group are
the file's `name`, `size` and `modified` time, and `received`, the number of bytes from the start that are stored. A
client writes a piece, then updates `received`, and continues from there after an interruption.
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
    """An uploaded file `name` of `size` bytes in the dataset `id`; `state` is a fingerprint of the upload's state."""

    name: str
    size: int
    id: str
    state: str

    @classmethod
    def parse(cls, path: str, root: Record, dataset: Record) -> Upload:
        """Return the upload at `path`; raises `BadRequest` if the domain is no upload, `Conflict` if it is incomplete.

        `root` is the JSON of the root group with attributes; `dataset` is the JSON of the dataset `bytes`.
        """
        attributes: Record = root.get("attributes") or {}
        found: Record = {name: one.get("value") for name, one in attributes.items()}
        name, size, received = found.get("name"), found.get("size"), found.get("received", 0)
        if not isinstance(name, str) or not is_file_name(name):
            raise _no_upload(
                path,
                f"its attribute name must be a file name: 1 to {LONGEST_NAME} printable characters without /",
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
    """Return the path of the domain that an `upload://` URL names; raises `BadRequest` for other URLs."""
    path = url.removeprefix(UPLOAD)
    if not url.startswith(UPLOAD) or not path.startswith("/") or not path.endswith(SUFFIX):
        raise BadRequest(f"{url!r} names no upload: use a URL such as {UPLOAD}/home/ada/run.h5{SUFFIX}.")
    return path


def root_id(path: str, domain: Record) -> str:
    """Return the root group's id from the JSON of the domain at `path`; raises `BadRequest` if it is a folder."""
    if domain.get("root") is None:
        raise _no_upload(path, "it is a folder")
    return str(domain["root"])


def bytes_id(path: str, root: Record) -> str:
    """Return the id of the dataset `bytes` in the root group; raises `BadRequest` if it has no such dataset."""
    link = (root.get("links") or {}).get(BYTES) or {}
    id = str(link.get("id", ""))
    if not id.startswith("d-"):
        raise _no_upload(path, f"its root group has no dataset {BYTES}")
    return id


def is_file_name(text: str) -> bool:
    """Return whether a text can be the name of a file."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and "/" not in text


def _no_upload(path: str, why: str) -> BadRequest:
    return BadRequest(f"{path} is no upload: {why}.")
