from __future__ import annotations

import pytest

from tests.sn.file_domain import INT, TEXT, fetch, fill_domain, place
from tests.sn.value_client import sparse, value_client
from tests.support.rest_client import RestClient


@pytest.fixture(scope="session")
def files() -> dict[str, bytes]:
    """The files that `served` has made, by the parameters of their requests: each takes a second."""
    return {}


@pytest.fixture
async def served(request: pytest.FixtureRequest, files: dict[str, bytes]) -> bytes:
    """The file of a domain with everything in it; the parameter is that of the request for it."""
    options = getattr(request, "param", {})
    name = repr(sorted(options.items()))
    if name not in files:
        async with value_client() as client:
            await fill_domain(client)
            await fill_more(client)
            files[name] = await fetch(client, **options)
    return files[name]


async def fill_more(client: RestClient) -> None:
    one = {"class": "H5D_CHUNKED", "dims": [50]}
    ids = [
        await place(client, f"/more {number}", TEXT, [50], [f"{number}"] * 50, layout=one)
        for number in range(3)
    ]
    reference = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    region = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
    chunked = {"class": "H5D_CHUNKED", "dims": [2]}
    values = [f"datasets/{id}" for id in ids]
    await place(client, "/chunked references", reference, [3], values, layout=chunked)
    selected = [{"id": id, "select_type": "H5S_SEL_POINTS", "selection": [[3], [7]]} for id in ids]
    await place(client, "/chunked regions", region, [3], selected, layout=chunked)
    layout = sparse(16, 8)
    await place(client, "/many", INT, [400, 300], 5, select="[0:400:3,0:300:7]", layout=layout, fillValue=-1)
