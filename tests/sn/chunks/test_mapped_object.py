"""What maps go through: groups once, datasets by every link, soft ones too."""

from __future__ import annotations

from hsparse.sn.chunks.mapped_objects import mapped_objects
from tests.support.rest_client import RestClient


async def test_groups_come_once_and_datasets_by_each_link(rest: RestClient, root: str) -> None:
    ids = {}
    for path in ("/one", "/a/two", "/a/b/three"):
        body = {"type": "H5T_STD_I32LE", "h5path": path}
        ids[path] = (await rest("POST", "/datasets", body, implicit=1))["id"]
    group = (await rest("GET", "/groups/", h5path="/a"))["id"]
    await rest("PUT", f"/groups/{root}/links/loop", {"id": group})
    await rest("PUT", f"/groups/{group}/links/again", {"id": ids["/one"]})
    targets = {
        "soft": "/one",
        "near": "./two",
        "through": "/loop/b/three",
        "chain": "/a/near",
        "group": "/a/b",
        "round": "/a/round",
        "below": "/one/x",
        "none": "/none",
        "gone": "/gone",
    }
    links = {title: {"h5path": target} for title, target in targets.items()}
    links["far"] = {"h5path": "/one", "file": "other.h5"}
    await rest("PUT", f"/groups/{group}/links", {"links": links})
    gone = (await rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "h5path": "/gone"}))["id"]
    await rest("DELETE", f"/datasets/{gone}")
    found = [one async for one in mapped_objects(rest.service.owners, root)]
    assert [one.path for one in found if not one.is_dataset] == ["/", "/a", "/a/b"]
    datasets = [(one.path, one.record["id"], one.first) for one in found if one.is_dataset]
    assert datasets == [
        ("/one", ids["/one"], "/one"),
        ("/a/again", ids["/one"], "/one"),
        ("/a/chain", ids["/a/two"], "/a/chain"),
        ("/a/near", ids["/a/two"], "/a/chain"),
        ("/a/soft", ids["/one"], "/one"),
        ("/a/through", ids["/a/b/three"], "/a/through"),
        ("/a/two", ids["/a/two"], "/a/chain"),
        ("/a/b/three", ids["/a/b/three"], "/a/through"),
    ]
