"""The operations whose cost is measured: each is a request, and the objects on whose number its cost may depend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeAlias

from benchmarks.scaling.installation import BINARY, Installation, Request

Prepare: TypeAlias = Callable[[Installation, int], Awaitable[Request]]

CHUNK = 10
"""Number of elements of a chunk, of 4 bytes each."""
DENSE = {"class": "H5D_CHUNKED", "dims": [CHUNK]}
SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [CHUNK], "flags": ["H5D_SPARSE_DATA"]}
INTEGER = "H5T_STD_I32LE"
ATTRIBUTE = {"type": INTEGER, "value": 1}
NEW = "new"
"""The name of the object that a request creates; `renamed` replaces it."""

_numbers = count()


@dataclass(frozen=True, slots=True)
class Operation:
    """A request that touches a number of objects, or that is measured while this number of objects exists; see `size`.

    `prepare` creates the objects and returns the request. `size` says which objects `prepare` counts. `touched`
    tells whether the request touches them. A `repeatable` request can be sent again.
    """

    name: str
    size: str
    prepare: Prepare
    touched: bool = True
    repeatable: bool = True


def name() -> str:
    """Return a new name."""
    return f"n{next(_numbers)}"


def renamed(request: Request) -> Request:
    """Return a copy of a request that creates its object under a new name, at the same cost."""
    other, body = name(), request.body
    if isinstance(body, dict) and "link" in body:
        body = {**body, "link": {**body["link"], "name": other}}
    path, domain = (text.removesuffix(NEW) for text in (request.path, request.domain))
    path = path + other if path != request.path else path
    return replace(
        request, path=path, body=body, domain=domain + other if domain != request.domain else domain
    )


async def dataset(installation: Installation, chunks: int, layout: dict[str, Any] | None = None) -> str:
    """Create a dataset of `chunks` chunks and write them all; return its id."""
    body: dict[str, Any] = {"type": INTEGER, "shape": [CHUNK * chunks], "maxdims": [0]}
    body["creationProperties"] = {"layout": layout or DENSE}
    id = str((await installation.ask(Request("POST", "/datasets", body)))["id"])
    await installation.ask(write_all(id, chunks))
    return id


def write_all(id: str, chunks: int) -> Request:
    """Return a write of all elements."""
    return Request("PUT", f"/datasets/{id}/value", bytes(4 * CHUNK * chunks))


async def attributes(installation: Installation, size: int) -> str:
    """Create a dataset with `size` attributes; return its id."""
    id = str((await installation.ask(Request("POST", "/datasets", {"type": INTEGER})))["id"])
    body = {"attributes": {f"a{number}": ATTRIBUTE for number in range(size)}}
    await installation.ask(Request("PUT", f"/datasets/{id}/attributes", body))
    return id


async def linked_group(installation: Installation, size: int) -> str:
    """Create a group with links to `size` groups; return its id."""
    id = str((await installation.ask(Request("POST", "/groups", {})))["id"])
    for number in range(size):
        await installation.ask(Request("POST", "/groups", {"link": {"id": id, "name": f"g{number:06}"}}))
    return id


async def folder(installation: Installation, size: int) -> str:
    """Create a folder with `size` domains; return its path."""
    path = f"/{name()}"
    await installation.ask(Request("PUT", "/", {"folder": True}, domain=path))
    for number in range(size):
        await installation.ask(Request("PUT", "/", domain=f"{path}/d{number:06}"))
    return path


async def domain_of_groups(installation: Installation, size: int) -> str:
    """Create a domain with `size` groups; return its path."""
    path = f"/{name()}"
    root = (await installation.ask(Request("PUT", "/", domain=path)))["root"]
    for number in range(size):
        body = {"link": {"id": root, "name": f"g{number:06}"}}
        await installation.ask(Request("POST", "/groups", body, domain=path))
    return path


async def domain_of_chunks(installation: Installation, size: int) -> str:
    """Create a domain with one dataset of `size` chunks; return its path."""
    path = f"/{name()}"
    root = (await installation.ask(Request("PUT", "/", domain=path)))["root"]
    body: dict[str, Any] = {"type": INTEGER, "shape": [CHUNK * size], "link": {"id": root, "name": "x"}}
    body["creationProperties"] = {"layout": DENSE}
    id = (await installation.ask(Request("POST", "/datasets", body, domain=path)))["id"]
    await installation.ask(Request("PUT", f"/datasets/{id}/value", bytes(4 * CHUNK * size), domain=path))
    return path


async def read_dense(installation: Installation, size: int) -> Request:
    return Request("GET", f"/datasets/{await dataset(installation, size)}/value", accept=BINARY)


async def read_sparse(installation: Installation, size: int) -> Request:
    id = await dataset(installation, size, SPARSE)
    return Request("GET", f"/datasets/{id}/value", params={"sparse": 1}, accept=BINARY)


async def write_dense(installation: Installation, size: int) -> Request:
    return write_all(await dataset(installation, size), size)


async def write_new(installation: Installation, size: int) -> Request:
    body = {"type": INTEGER, "shape": [CHUNK * size], "creationProperties": {"layout": DENSE}}
    return write_all(str((await installation.ask(Request("POST", "/datasets", body)))["id"]), size)


async def write_points(installation: Installation, size: int) -> Request:
    id = await dataset(installation, size, SPARSE)
    body = {"points": [CHUNK * number for number in range(size)], "value": [1] * size}
    return Request("PUT", f"/datasets/{id}/value", body)


async def append(installation: Installation, size: int) -> Request:
    id = await dataset(installation, 1)
    count = CHUNK * size
    return Request("PUT", f"/datasets/{id}/value", bytes(4 * count), {"append": count})


async def put_attribute(installation: Installation, size: int) -> Request:
    return Request("PUT", f"/datasets/{await attributes(installation, size)}/attributes/{NEW}", ATTRIBUTE)


async def get_dataset(installation: Installation, size: int) -> Request:
    return Request("GET", f"/datasets/{await attributes(installation, size)}")


async def create_dataset(installation: Installation, size: int) -> Request:
    link = {"id": await linked_group(installation, size), "name": NEW}
    return Request("POST", "/datasets", {"type": INTEGER, "shape": [CHUNK], "link": link})


async def create_domain(installation: Installation, size: int) -> Request:
    return Request("PUT", "/", domain=f"{await folder(installation, size)}/{NEW}")


async def delete_dataset(installation: Installation, size: int) -> Request:
    return Request("DELETE", f"/datasets/{await dataset(installation, size)}")


async def delete_domain(installation: Installation, size: int) -> Request:
    return Request("DELETE", "/", params={"wait": 60}, domain=await domain_of_groups(installation, size))


async def shrink(installation: Installation, size: int) -> Request:
    id = await dataset(installation, size)
    return Request("PUT", f"/datasets/{id}/shape", {"shape": [0]})


async def list_links(installation: Installation, size: int) -> Request:
    return Request("GET", f"/groups/{await linked_group(installation, size)}/links")


async def list_chunks(installation: Installation, size: int) -> Request:
    return Request("GET", f"/datasets/{await dataset(installation, size)}/chunks")


async def list_sparse_chunks(installation: Installation, size: int) -> Request:
    return Request("GET", f"/datasets/{await dataset(installation, size, SPARSE)}/chunks")


async def list_domains(installation: Installation, size: int) -> Request:
    return Request("GET", "/domains", domain=f"{await folder(installation, size)}/")


async def list_objects(installation: Installation, size: int) -> Request:
    return Request("GET", "/groups", domain=await domain_of_groups(installation, size))


async def get_domain(installation: Installation, size: int) -> Request:
    return Request("GET", "/", domain=await domain_of_groups(installation, size))


async def export(installation: Installation, size: int) -> Request:
    return Request("GET", f"/files{await domain_of_chunks(installation, size)}", accept=BINARY)


async def get_map(installation: Installation, size: int) -> Request:
    return Request("GET", f"/datasets/{await dataset(installation, size)}/map")


OPERATIONS = (
    Operation("read of dense chunks", "chunks", read_dense),
    Operation("read of sparse chunks", "chunks", read_sparse),
    Operation("write of whole chunks", "chunks", write_dense),
    Operation("write of whole new chunks", "chunks", write_new, repeatable=False),
    Operation("write of a point in each sparse chunk", "chunks", write_points),
    Operation("append", "chunks", append, repeatable=False),
    Operation("shrink that removes chunks", "chunks", shrink, repeatable=False),
    Operation("`PUT` of an attribute", "attributes there are", put_attribute, False, repeatable=False),
    Operation("`GET` of a dataset", "attributes it has", get_dataset, False),
    Operation("`GET` of a domain", "groups in it", get_domain, False),
    Operation("create a dataset", "links in its group", create_dataset, False, repeatable=False),
    Operation("create a domain", "domains in its folder", create_domain, False, repeatable=False),
    Operation("delete a dataset", "chunks", delete_dataset, repeatable=False),
    Operation("delete a domain", "groups", delete_domain, repeatable=False),
    Operation("list links", "links", list_links),
    Operation("list groups", "groups", list_objects),
    Operation("list domains", "domains", list_domains),
    Operation("list dense chunks", "chunks", list_chunks),
    Operation("list sparse chunks", "chunks", list_sparse_chunks),
    Operation("export by `GET /files`", "chunks", export),
    Operation("map", "chunks", get_map),
)
