"""Files uploaded as the explorer does it: into a domain beside the one to be made of them, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hsparse.client.connection import Connection

CHUNK = 1 << 20
PIECE = 8 << 20
INTEGER = "H5T_STD_I64LE"
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


def scalar(value: Any) -> dict[str, Any]:
    """Return the body of an attribute: a number or a text."""
    return {"type": TEXT if isinstance(value, str) else INTEGER, "shape": [], "value": value}


def dataset_body(root: str, size: int, chunk: int = CHUNK) -> dict[str, Any]:
    """Return the body that creates the dataset of the bytes."""
    layout = {"class": "H5D_CHUNKED", "dims": [max(1, min(chunk, size))]}
    link = {"id": root, "name": "bytes"}
    return {"type": "H5T_STD_U8LE", "shape": [size], "link": link, "creationProperties": {"layout": layout}}


def attributes_body(name: str, size: int, received: int) -> dict[str, Any]:
    """Return the body that sets all attributes."""
    values = {"name": name, "size": size, "modified": 1_795_701_646_402, "received": received}
    return {"attributes": {key: scalar(value) for key, value in values.items()}}


def pieces(size: int, start: int = 0, piece: int = PIECE) -> Iterator[tuple[int, int]]:
    """Yield where pieces begin and end."""
    for first in range(start, size, piece):
        yield first, min(first + piece, size)


def upload(
    connection: Connection, path: str, data: bytes, name: str = "run.h5", received: int | None = None
) -> str:
    """Upload a file into the domain `path`, if need be not all of it; return the URL for its import."""
    root = connection.json("PUT", "/", {}, domain=path)["root"]
    id = connection.json("POST", "/datasets", dataset_body(root, len(data)), domain=path)["id"]
    there = len(data) if received is None else received
    connection.json("PUT", f"/groups/{root}/attributes", attributes_body(name, len(data), there), domain=path)
    for start, stop in pieces(len(data)):
        connection.json(
            "PUT", f"/datasets/{id}/value", data[start:stop], domain=path, select=f"[{start}:{stop}]"
        )
    return f"upload://{path}"
