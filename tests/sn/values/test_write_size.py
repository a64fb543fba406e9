"""Writes by short bodies that would fill the store: refused before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.setting import MIB
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import create, sparse, value_client

CHUNKED = {"layout": {"class": "H5D_CHUNKED", "dims": [1000, 100]}}
SETTINGS = ServiceSettings(max_write_size=4 * MIB)
TEXT = {
    "class": "H5T_STRING",
    "length": "H5T_VARIABLE",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
}


@pytest.mark.parametrize(
    ("kind", "properties", "value", "few", "many"),
    [
        ("H5T_STD_I64LE", CHUNKED, 7, "[0:3000:1000,0:1]", "[0:20000:1000,0:1]"),
        ("H5T_STD_I64LE", {"layout": sparse(1000, 100)}, 7, "[0:5000,:]", "[0:6000,:]"),
        (TEXT, {"layout": sparse(1000, 100)}, "a" * 1000, "[0:40,:]", "[0:45,:]"),
    ],
    ids=["dense", "sparse", "text"],
)
async def test_one_value_fills_so_many_bytes(
    kind: Any, properties: dict[str, Any], value: Any, few: str, many: str
) -> None:
    async with value_client(settings=SETTINGS) as client:
        path = await create(client, [100_000, 100], kind, **properties)
        body = {"value": value, "element_count": 1}
        refused = await client("PUT", f"{path}/value", body, select=many)
        assert refused.status == 413
        assert "max_write_size" in refused["error"]["message"]
        assert (await client("GET", f"{path}/chunks"))["chunks"] == []
        assert (await client("PUT", f"{path}/value", body, select=few)).status == 200


async def test_a_change_by_a_query_fills_so_many_bytes() -> None:
    async with value_client(settings=SETTINGS) as client:
        path = await create(client, [100_000, 100], "H5T_STD_I64LE", **CHUNKED)
        refused = await client(
            "PUT", f"{path}/value", {"value": 7}, query="_ == 0", select="[0:20000:1000,0:1]"
        )
        assert refused.status == 413
        assert (
            await client("PUT", f"{path}/value", {"value": 7}, query="_ == 1", select="[0:20000:1000,0:1]")
        ).status == 200
