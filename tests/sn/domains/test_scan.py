"""What a domain or a dataset takes in the store."""

from __future__ import annotations

import pytest

from hsparse.clock import ManualClock
from hsparse.cluster.membership import Membership
from hsparse.model.objid import chunk_key, storage_key
from hsparse.sn.domains import scan
from hsparse.sn.domains.scan import dataset_of_key
from hsparse.sn.owners import Owners
from hsparse.testing.dict_data_node import DictDataNode
from hsparse.testing.rest_client import RestClient


async def test_verbose_counts(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    body = {"type": "H5T_STD_I32LE", "shape": [4], "link": {"id": group, "name": "d"}}
    dataset = (await rest("POST", "/datasets", body))["id"]
    got = await rest("GET", "/", verbose=1)
    assert (got["num_groups"], got["num_datasets"], got["num_datatypes"], got["num_chunks"]) == (2, 1, 0, 0)
    assert got["num_objects"] == 3
    assert got["scan_info"]["datasets"][dataset]["logical_bytes"] == 16
    assert got["total_size"] == got["metadata_bytes"] > 0


@pytest.mark.parametrize("node", ["service"], indirect=True)  # the model keeps no chunks
async def test_chunks_are_counted(rest: RestClient) -> None:
    properties = {"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [4], "flags": ["H5D_SPARSE_DATA"]}}
    body = {
        "type": "H5T_STD_I8LE",
        "shape": [100],
        "creationProperties": properties,
        "value": list(range(100)),
    }
    id = (await rest("POST", "/datasets", body))["id"]
    shown = await rest("GET", f"/datasets/{id}", verbose=1)
    assert shown["num_chunks"] == 25
    assert shown["allocated_size"] > 100
    counts = await rest("GET", "/", verbose=1)
    assert (counts["num_chunks"], counts["allocated_bytes"]) == (25, shown["allocated_size"])
    assert counts["scan_info"]["datasets"][id]["num_chunks"] == 25
    await rest("DELETE", f"/datasets/{id}")
    assert (await rest("GET", "/", verbose=1))["num_datasets"] == 0


def test_the_dataset_of_a_key() -> None:
    id = "d-00000000-00000001-0000-000000-000002"
    for key in (storage_key(id), chunk_key(id, (3, 4)), chunk_key(id, ())):
        assert dataset_of_key(key) == id


async def test_a_listing_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "KEYS_AT_ONCE", 2)
    node = DictDataNode(ManualClock())
    root = "g-00000000-00000001-8888-888888-888889"
    for n in range(7):
        id = f"g-00000000-00000001-0000-000000-00000{n}"
        node.records[id] = {"id": id}
    owners = Owners(Membership(1, ("dn-001",)), {"dn-001": node})
    assert (await scan.scan_domain(owners, root))["num_groups"] == 7
    assert len(node.log) == 4
