"""Several buckets behind one server: which one a request is about, and what is apart in each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService, NodeResources
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

PATH = "/home/ann/f.h5"
USERS = (Principal("ann"), Principal("ben"), Principal("admin", admin=True))
TO_OTHER: list[dict[str, Any]] = [
    {"bucket": "other"},
    {"headers": {"X-Hdf-bucket": "other"}},
    {"bucket": "other", "headers": {"X-Hdf-bucket": "first"}},
    {"domain": f"other{PATH}"},
    {"domain": f"other{PATH}", "bucket": "first"},
    {"domain": f"other{PATH}", "headers": {"X-Hdf-bucket": "third"}},
]


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    clock, stores = SystemClock(), [MemoryStore(name) for name in ("first", "other")]
    shared = NodeResources.of(DataSettings(), *stores)
    await stores[1].put("data/file.h5", np.arange(10, dtype="<i4").tobytes())
    await stores[1].put("home/ann/own.h5", np.arange(10, dtype="<i4").tobytes())
    node = BucketRouter([DataService(one, clock, resources=shared.of_bucket(one.name)) for one in stores])
    settings = ServiceSettings(bucket="first", other_buckets=("other",))
    async with RestClient(node, clock, *USERS, settings=settings) as made:
        made.domain = PATH
        yield made


@pytest.mark.parametrize("way", TO_OTHER)
async def test_a_request_names_its_bucket(client: RestClient, way: dict[str, Any]) -> None:
    made = await client("PUT", "/", {}, bucket="other")
    assert made.status == 201
    assert (await client("GET", "/", **way))["root"] == made["root"]
    assert (await client("GET", "/")).status == 404
    group = await client("GET", f"/groups/{made['root']}", **way)
    assert group["bucket"] == "other"
    assert (await client("GET", f"/groups/{made['root']}")).status == 404


async def test_everything_works_there(client: RestClient) -> None:
    root = (await client("PUT", "/", {}, bucket="other"))["root"]
    body = {"type": "H5T_STD_I32LE", "shape": [100], "link": {"id": root, "name": "d"}}
    path = f"/datasets/{(await client('POST', '/datasets', body, bucket='other'))['id']}"
    values = np.arange(100, dtype="<i4")
    assert (await client("PUT", f"{path}/value", values.tobytes(), bucket="other")).status == 200
    assert (await client("GET", f"{path}/value", bucket="other"))["value"] == values.tolist()
    listed = await client("GET", "/domains", domain="/home/ann/", bucket="other")
    assert [one["name"] for one in listed["domains"]] == [PATH]
    assert (await client("GET", "/domains", domain="/home/ann/"))["domains"] == []
    assert (await client("GET", "/", verbose=1, bucket="other"))["num_datasets"] == 1
    assert (await client("GET", f"{path}/chunks", bucket="other"))["chunks"][0]["bucket"] == "other"
    parent = (await client("GET", "/", bucket="other"))["hrefs"][-1]
    assert parent["href"].endswith("/?domain=other/home/ann")
    file = await client("HEAD", "/files/home/ann/f.h5", domain=None, bucket="other")
    assert file.status == 200
    assert (await client("HEAD", "/files/home/ann/f.h5", domain=None)).status == 404
    assert (await client("DELETE", "/", bucket="other")).status == 200
    assert (await client("GET", "/", bucket="other")).status == 410


async def test_the_same_path_is_another_domain_in_each_bucket(client: RestClient) -> None:
    roots = {bucket: (await client("PUT", "/", {}, bucket=bucket))["root"] for bucket in ("first", "other")}
    assert roots["first"] != roots["other"]
    for bucket, root in roots.items():
        await client(
            "PUT", f"/groups/{root}/attributes/where", {"type": "H5T_STD_I8LE", "value": 1}, bucket=bucket
        )
    assert (await client("GET", "/"))["root"] == roots["first"]
    assert (await client("DELETE", "/", bucket="other")).status == 200
    assert (await client("GET", "/"))["root"] == roots["first"]


async def test_rights_are_of_a_bucket(client: RestClient) -> None:
    for bucket in ("first", "other"):
        assert (await client("PUT", "/", {}, bucket=bucket)).status == 201
    assert (await client("PUT", "/acls/ben", {"read": True}, bucket="other")).status == 201
    assert (await client("GET", "/acls/ben", bucket="other"))["acl"]["domain"] == f"other{PATH}"
    assert (await client("GET", "/", user="ben", bucket="other")).status == 200
    assert (await client("GET", "/", user="ben")).status == 403


async def test_a_bucket_that_is_not_served(client: RestClient) -> None:
    assert (await client("GET", "/", bucket="third")).status == 404
    assert (await client("GET", "/domains", bucket="third", domain=None)).status == 404
    assert (await client("PUT", "/", {}, domain=f"third{PATH}")).status == 404
    for name in ("bad/bucket", "a b", "..", "."):
        assert (await client("GET", "/", bucket=name)).status == 400
        assert (await client("GET", "/", bucket=name, domain=f"other{PATH}")).status == 400


async def test_links_stay_in_one_bucket(client: RestClient) -> None:
    roots = {bucket: (await client("PUT", "/", {}, bucket=bucket))["root"] for bucket in ("first", "other")}
    link = {"h5path": "/", "h5domain": f"other{PATH}"}
    assert (await client("PUT", f"/groups/{roots['first']}/links/x", link)).status == 201
    assert (await client("GET", "/", h5path="/x", follow_external_links=1)).status == 404
    assert (await client("PUT", f"/groups/{roots['other']}/links/x", link, bucket="other")).status == 201
    found = await client("GET", "/", h5path="/x", follow_external_links=1, bucket="other")
    assert found["id"] == roots["other"]
    body = {"linked_domain": PATH, "linked_bucket": "other"}
    assert (await client("PUT", "/", body, domain="/home/ann/l.h5")).status == 404


async def test_jobs_run_in_the_first_bucket_alone(client: RestClient) -> None:
    body = {"kind": "export", "domain": PATH, "target": "s3://b/x.h5"}
    assert (await client("POST", "/jobs", body, domain=None, bucket="other")).status == 400


@pytest.mark.parametrize("bucket", ["first", "other"])
async def test_a_dataset_is_linked_to_a_file_of_another_bucket(client: RestClient, bucket: str) -> None:
    for name in ("first", "other"):
        assert (await client("PUT", "/", {}, bucket=name)).status == 201
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "s3://other/data/file.h5", "offset": 0, "size": 40}
    body = {"type": "H5T_STD_I32LE", "shape": [10], "creationProperties": {"layout": layout}}
    made = await client("POST", "/datasets", body, bucket=bucket)
    path = f"/datasets/{made['id']}"
    assert (await client("GET", f"{path}/value", bucket=bucket))["value"] == list(range(10))
    (chunk,) = (await client("GET", f"{path}/chunks", bucket=bucket))["chunks"]
    assert (chunk["bucket"], chunk["key"]) == ("other", "data/file.h5")
    await client("PUT", "/acls/default", {"read": False}, domain="/home/ann", bucket="other")
    layout["file_uri"] = "s3://other/home/ann/own.h5"
    refused = await client("POST", "/datasets", body, bucket=bucket, user="ben")
    assert refused.status == 403
    await client("PUT", "/acls/ben", {"create": True, "read": True}, bucket="first")
    if bucket == "first":
        refused = await client("POST", "/datasets", body, user="ben")
        assert (refused.status, "/home/ann" in refused["error"]["message"]) == (403, True)
    assert (await client("POST", "/datasets", body, bucket=bucket)).status == 201
    layout["file_uri"] = "s3://third/data/file.h5"
    made = await client("POST", "/datasets", body, bucket=bucket)
    assert (await client("GET", f"/datasets/{made['id']}/value", bucket=bucket)).status == 403
