"""Snapshots: what was there is read for as long as they are, with its own ids, and nothing is left of the deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from hsparse.dn.data_settings import DataSettings
from hsparse.dn.record_form import add_checksum, check_checksum, parse_json
from hsparse.model.ids import domain_prefix, moved_id, root_id
from hsparse.stripes.store import StripedStore
from hsparse.versions.moved_ids import moved
from hsparse.wire.record_message import BeginAppend
from tests.testing.memory_store import MemoryStore
from tests.versions.conftest import DENSE, DOMAIN, SPARSE, Versioned

TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": 2}
AT_1, AT_2 = f"{DOMAIN}@1", f"{DOMAIN}@2"


@pytest.mark.parametrize("layout", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_was_there_is_read_whatever_is_changed(
    past: Versioned, layout: dict[str, Any], restarted: bool
) -> None:
    kept = await past.create("kept", 30, layout)
    gone = await past.create("gone", 30, layout)
    for id in (kept, gone):
        await past.write(id, 0, range(20))
    before = await past.read(kept)
    await past.done("PUT", f"/datasets/{kept}/attributes/unit", {"type": TEXT, "value": "mm"})
    assert await past.snapshot("first") == 1
    if restarted:
        await past.restart()
    await past.write(kept, 5, [100, 101])
    await past.write(kept, 25, [102])  # a new chunk
    await past.done("PUT", f"/datasets/{kept}/shape", {"shape": [50]})
    await past.write(kept, 40, range(10))
    await past.done("PUT", f"/datasets/{kept}/attributes/unit", {"type": TEXT, "value": "cm"}, replace=1)
    await past.done("DELETE", f"/datasets/{gone}")
    root = (await past.done("GET", "/"))["root"]
    await past.done("DELETE", f"/groups/{root}/links/gone")
    new = await past.create("new", 10, layout)
    await past.write(new, 0, range(10))
    assert await past.snapshot() == 2
    await past.write(kept, 0, [7])
    if restarted:
        await past.restart()
    old = await past.links(domain=AT_1)
    assert set(old) == {"kept", "gone"}
    for name in old:
        assert await past.read(old[name], domain=AT_1) == before
    unit = await past.done("GET", f"/datasets/{old['kept']}/attributes/unit", domain=AT_1)
    assert unit["value"] == "mm"
    assert (await past.done("GET", f"/datasets/{old['kept']}", domain=AT_1))["shape"]["dims"] == [30]
    chunks = await past.done("GET", f"/datasets/{old['kept']}/chunks", domain=AT_1)
    assert len(chunks["chunks"]) == 2
    later = await past.links(domain=AT_2)
    assert set(later) == {"kept", "new"}
    assert (await past.read(later["kept"], domain=AT_2))[:6] == [*before[:5], 100]
    assert (await past.read(kept))[0] == 7
    assert await past.read(later["new"], domain=AT_2) == list(range(10))


async def test_of_deleted_snapshots_nothing_is_left(past: Versioned) -> None:
    kept, gone = [await past.create(name, 30, SPARSE) for name in ("kept", "gone")]
    fresh = set(await past.keys())
    for id in (kept, gone):
        await past.write(id, 0, range(25))
    chunks = set(await past.keys()) - fresh
    for _ in range(3):
        await past.snapshot()
        await past.write(kept, 0, range(5, 30))
    await past.done("DELETE", f"/datasets/{gone}")
    whole = await past.links(domain=AT_1)
    await past.done("DELETE", "/snapshots/2")
    assert await past.read(whole["kept"], domain=AT_1) == [*range(25), *[0] * 5]
    copies = [key for key in await past.keys() if "/.history/" in key and whole["kept"][20:] in key]
    assert copies
    await past.done("DELETE", "/snapshots/1")
    at_3 = await past.links(domain=f"{DOMAIN}@3")
    assert await past.read(at_3["gone"], domain=f"{DOMAIN}@3") == [*range(25), *[0] * 5]
    await past.done("DELETE", "/snapshots/3")
    mine = {key for key in fresh | chunks if f"/{gone[20:]}/" not in key}
    assert set(await past.keys()) - {"db/.schema.json"} == mine
    for domain in (AT_1, f"{DOMAIN}@3"):
        assert (await past.rest("GET", "/", domain=domain)).status in (404, 410)
    assert await past.snapshot() == 1


async def test_a_run_that_appends_copies_the_last_chunk_and_the_record(past: Versioned) -> None:
    id = await past.create("kept", 0, DENSE)
    await append(past, id, 9)
    past.store.reset()
    await append(past, id, 60)
    plain = sum(past.store.calls.values())
    await past.snapshot()
    past.store.reset()
    await append(past, id, 60)
    copied = [key for call, key in past.store.keys if "/.history/" in key and "put" in call]
    assert len(copied) == 2, copied
    assert sum(past.store.calls.values()) <= 1.05 * plain, past.store.keys
    assert len(await past.read((await past.links(domain=AT_1))["kept"], domain=AT_1)) == 7 * 69


async def append(past: Versioned, id: str, count: int) -> None:
    for _ in range(count):
        await past.done("PUT", f"/datasets/{id}/value", b"\1\0\0\0" * 7, append=7)


async def test_each_chunk_is_copied_once(past: Versioned) -> None:
    id = await past.filled(50, SPARSE)
    await past.snapshot()
    past.store.reset()
    for value in range(3):
        await past.write(id, 0, [value] * 50)
    assert past.store.puts == 3 * 5 + 6  # the record, too
    past.store.reset()
    await past.write(id, 0, [9] * 50)
    assert past.store.calls == {"put_if_match": 5}


async def test_without_snapshots_the_store_is_asked_for_its_schema_alone(past: Versioned) -> None:
    id = await past.create("kept", 50, SPARSE)
    assert past.store.keys["get", "db/.schema.json"] == 1
    assert not any(".versions.json" in key for _, key in past.store.keys)
    past.store.reset()
    await past.write(id, 0, range(50))
    assert past.store.puts == sum(past.store.calls.values()) - past.store.calls["get"]


async def test_what_a_snapshot_costs_does_not_depend_on_the_size(past: Versioned) -> None:
    await past.snapshot()
    past.store.reset()
    await past.snapshot()
    small = dict(past.store.calls)
    await past.filled(1000)
    past.store.reset()
    await past.snapshot()
    assert past.store.calls == small
    assert past.store.puts == 3
    assert sum(small.values()) <= 9


async def test_a_snapshot_has_the_rights_of_its_domain_also_after_these_change(past: Versioned) -> None:
    ann = {"user": "ann", "domain": AT_1}
    await past.create("kept", 5, DENSE)
    await past.snapshot()
    assert (await past.rest("GET", "/", **ann)).status == 403
    await past.done("PUT", "/acls/ann", {"read": True})
    root = (await past.done("GET", "/", **ann))["root"]
    await past.done("GET", f"/groups/{root}/links", **ann)
    for method, path in (("POST", "/snapshots"), ("DELETE", "/snapshots/1")):
        assert (await past.rest(method, path, {}, user="ann")).status == 403
    await past.done("PUT", "/acls/ann", {"read": False})
    assert (await past.rest("GET", f"/groups/{root}/links", **ann)).status == 403


async def test_a_snapshot_never_changes(past: Versioned) -> None:
    await past.create("kept", 5, DENSE)
    await past.snapshot()
    id = (await past.links(domain=AT_1))["kept"]
    root = (await past.done("GET", "/", domain=AT_1))["root"]
    before = set(await past.keys())
    changes: list[tuple[str, str, Any]] = [
        ("PUT", f"/datasets/{id}/value", {"value": [1, 2, 3, 4, 5]}),
        ("PUT", f"/datasets/{id}/shape", {"shape": [9]}),
        ("PUT", f"/groups/{root}/links/x", {"id": id}),
        ("DELETE", f"/datasets/{id}", None),
        ("PUT", "/acls/ann", {"read": True}),
        ("DELETE", "/", None),
    ]
    for method, path, body in changes:
        reply = await past.rest(method, path, body, domain=AT_1)
        assert (reply.status, "never changes" in str(reply.body)) == (403, True), (method, path, reply)
    assert set(await past.keys()) == before
    assert domain_prefix(root) not in "".join(before)


async def test_snapshots_are_listed(past: Versioned) -> None:
    first = await past.done("POST", "/snapshots", {"message": "before"})
    await past.snapshot()
    listed = (await past.done("GET", "/snapshots"))["snapshots"]
    assert [one["snapshot"] for one in listed] == [1, 2]
    assert listed[0] == {key: first[key] for key in listed[0]}
    assert (listed[0]["author"], listed[0]["message"]) == ("admin", "before")
    assert (await past.done("GET", "/snapshots/2"))["snapshot"] == 2
    for method in ("GET", "DELETE"):
        reply = await past.rest(method, "/snapshots/7")
        assert (reply.status, "there are 1, 2" in str(reply.body)) == (404, True)
    assert (await past.rest("GET", "/", domain=f"{DOMAIN}@7")).status == 404
    assert (await past.rest("GET", "/snapshots", domain=AT_1)).status == 403


async def test_a_snapshot_is_named_by_a_parameter_too_and_takes_ids_of_the_domain(past: Versioned) -> None:
    id = await past.filled(5)
    root = (await past.done("GET", "/"))["root"]
    await past.snapshot()
    await past.write(id, 0, [7])
    assert await past.read(id, snapshot=1) == [0, 1, 2, 3, 4]
    assert await past.read(id, domain=AT_1) == [0, 1, 2, 3, 4]
    assert await past.links(snapshot=1) == await past.links(domain=AT_1)
    assert (await past.done("GET", f"/groups/{root}", snapshot=1))["linkCount"] == 1
    files = [(f"{DOMAIN}@1", {}), (DOMAIN, {"snapshot": 1}), (f"{DOMAIN}.h5", {"snapshot": 1}), (DOMAIN, {})]
    etags = [
        (await past.done("HEAD", f"/files{path}", domain=None, **query)).headers["ETag"]
        for path, query in files
    ]
    assert etags[0] == etags[1] == etags[2] != etags[3]
    statuses = [(await past.rest("GET", "/", snapshot=one)).status for one in ("2", "0", "x", "1" * 30)]
    assert statuses == [404, 400, 400, 400]
    assert (await past.rest("PUT", f"/datasets/{id}/value", {"value": [1] * 5}, snapshot=1)).status == 403


async def test_a_lower_bound_that_moves_is_that_of_the_snapshot(past: Versioned) -> None:
    root = (await past.done("GET", "/"))["root"]
    body = {
        "type": "H5T_STD_I32LE",
        "shape": [20],
        "maxdims": [0],
        "lower": [-15],
        "minlower": ["H5S_UNLIMITED"],
        "creationProperties": {"layout": SPARSE},
        "link": {"id": root, "name": "kept"},
    }
    id = str((await past.done("POST", "/datasets", body))["id"])
    await past.write(id, 0, range(20))
    await past.snapshot()
    past.store.reset()
    for _ in range(3):
        one = np.full(10, 7, "<i4").tobytes()
        await past.done("PUT", f"/datasets/{id}/value", one, append=10, append_side="lower")
    copies = [key for call, key in past.store.keys if "/.history/" in key and "put" in call]
    assert len(copies) == 2, copies  # the record, and the chunk with the bound
    await past.write(id, 49, [8])
    old = (await past.links(domain=AT_1))["kept"]
    assert await past.read(old, domain=AT_1) == list(range(20))
    assert await past.read(id) == [*[7] * 30, *range(19), 8]
    await past.done("POST", "/snapshots/1/restore", {})
    assert await past.read(id) == list(range(20))
    assert (await past.done("GET", f"/datasets/{id}"))["shape"]["lower"] == [-15]


async def test_statistics_are_of_what_a_domain_has_now(past: Versioned) -> None:
    id = await past.filled(30)
    await past.snapshot()
    await past.write(id, 0, range(1, 31))
    for options in ({}, {"domain": AT_1}):
        found = (await past.done("GET", "/", verbose=1, **options)).body
        assert [found[f"num_{kind}"] for kind in ("groups", "datasets", "chunks")] == [1, 1, 3]


async def test_a_virtual_dataset_is_made_of_what_the_snapshot_has(past: Versioned) -> None:
    id = await past.filled(30)
    root = (await past.done("GET", "/"))["root"]
    body = {
        "type": "H5T_STD_I32LE",
        "shape": [30],
        "creationProperties": {"layout": {"class": "H5D_VIRTUAL", "mappings": [{"dataset": "/kept"}]}},
        "link": {"id": root, "name": "made"},
    }
    made = str((await past.done("POST", "/datasets", body))["id"])
    await past.snapshot()
    await past.write(id, 0, [7] * 30)
    old = (await past.links(domain=AT_1))["made"]
    assert await past.read(old, domain=AT_1) == list(range(30))
    assert await past.read(made) == [7] * 30


async def test_chunks_in_another_bucket_are_kept_too(past: Versioned) -> None:
    await past.close()
    other = MemoryStore("other")
    first = past.store
    past.store = StripedStore(first, {"other": other})  # type: ignore[assignment]
    past.settings = replace(past.settings, other_buckets=("other",), bucket=first.name)
    await past.open()
    id = await past.create("kept", 50, SPARSE | {"stripes": ["other/x"]})
    await past.write(id, 0, range(50))
    await past.snapshot()
    await past.write(id, 0, [9] * 50)
    old = (await past.links(domain=AT_1))["kept"]
    assert await past.read(old, domain=AT_1) == list(range(50))
    await past.done("POST", "/clones", {"target": "/home/admin/c", "snapshot": 1})
    mine = (await past.links(domain="/home/admin/c"))["kept"]
    await past.write(mine, 3, [77], domain="/home/admin/c")
    assert await past.read(mine, domain="/home/admin/c") == [0, 1, 2, 77, *range(4, 50)]
    await past.done("POST", "/snapshots/1/restore", {})
    assert await past.read(id) == list(range(50))
    await past.done("DELETE", "/", domain="/home/admin/c", wait=10)
    await past.done("DELETE", "/", wait=10)
    assert [entry.key async for page in other.list("") for entry in page.entries] == []


async def test_of_a_matrix_that_is_appended_to_a_clone_has_a_file(past: Versioned) -> None:
    body = {"type": "H5T_STD_I32LE", "shape": [3, 8], "maxdims": [0, 0]}
    body |= {"creationProperties": {"layout": SPARSE | {"dims": [2, 8]}}}
    link = {"id": (await past.done("GET", "/"))["root"], "name": "m"}
    id = (await past.done("POST", "/datasets", body | {"link": link}))["id"]
    (await past.doors[0].service.owners.apply(BeginAppend(id, "dead", (1, 8), 0, -1.0))).unwrap()
    await past.snapshot()
    refused = await past.rest("GET", f"/files{AT_1}", matrices="anndata-csr")
    assert (refused.status, "clone" in refused["error"]["message"]) == (409, True)
    await past.done("POST", "/clones", {"target": "/home/admin/clone", "snapshot": 1})
    await past.done("GET", "/files/home/admin/clone", matrices="anndata-csr")


VARIABLE_TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "to", "type": REFERENCE}, {"name": "note", "type": VARIABLE_TEXT}],
}
CLONE = "/home/admin/clone"


def texts(root: str, id: str) -> tuple[str, ...]:
    """Return texts that have an id, or its half, in them."""
    return (
        id,
        root,
        root[2:19],
        f"datasets/{id}",
        f'{{"id":"{id}"}}',
        f'"id": "{root}"',
        f"from {root}, {id}",
    )


@pytest.mark.parametrize("large", [False, True], ids=["whole", "changes beside it"])
async def test_texts_stay_as_they_are(past: Versioned, large: bool) -> None:
    if large:
        past.data = DataSettings(large_record_size=1)
        await past.restart()
    id, root = await past.create("one", 10, DENSE), (await past.done("GET", "/"))["root"]
    words = texts(root, id)
    for number, word in enumerate(words):
        await past.done("PUT", f"/groups/{root}/attributes/a{number}", {"type": VARIABLE_TEXT, "value": word})
        named = word.replace("/", "|")
        await past.done("PUT", f"/groups/{root}/links/{number}", {"h5path": f"/{named}"})
        links = {"links": {f"{number} {named}": {"h5path": "/x"}}}
        await past.done("PUT", f"/groups/{root}/links", links)
        await past.done(
            "PUT",
            f"/groups/{root}/attributes",
            {"attributes": {named: {"type": VARIABLE_TEXT, "value": "x"}}},
        )
    pairs = {"type": PAIR, "shape": [2], "value": [[f"datasets/{id}", id], [f"groups/{root}", root]]}
    await past.done("PUT", f"/groups/{root}/attributes/pairs", pairs)
    await past.snapshot()
    await past.done("POST", "/clones", {"target": CLONE, "snapshot": 1})
    await past.done("DELETE", f"/groups/{root}/attributes/a0")
    await past.done("POST", "/snapshots/1/restore")
    for domain in (DOMAIN, f"{DOMAIN}@1", CLONE):
        to = (await past.done("GET", "/", domain=domain))["root"]
        found = (await past.done("GET", f"/groups/{to}/attributes", IncludeData=1, domain=domain))[
            "attributes"
        ]
        values = {one["name"]: one["value"] for one in found}
        assert tuple(values[f"a{number}"] for number in range(len(words))) == words
        assert {word.replace("/", "|") for word in words} < values.keys()
        there = moved_id(id, root, to)
        assert values["pairs"] == [[f"datasets/{there}", id], [f"groups/{to}", root]]
        links = (await past.done("GET", f"/groups/{to}/links", domain=domain))["links"]
        targets = {link["title"]: link.get("id", link.get("h5path")) for link in links}
        assert targets["one"] == there
        for number, word in enumerate(words):
            named = word.replace("/", "|")
            assert targets[str(number)] == f"/{named}"
            assert targets[f"{number} {named}"] == "/x"


def of_type(kind: Any, value: Any) -> dict[str, Any]:
    return {"attributes": {"a": {"type": kind, "shape": {"class": "H5S_SCALAR"}, "value": value}}}


HERE, THERE = root_id(bytes(range(8))), root_id(bytes(range(8, 16)))
ID = f"d{HERE[1:20]}1234-123456-123456"
VLEN, ARRAY = {"class": "H5T_VLEN", "base": REFERENCE}, {"class": "H5T_ARRAY", "base": REFERENCE, "dims": [2]}
NESTED = {"class": "H5T_COMPOUND", "fields": [{"name": "p", "type": PAIR}, {"name": "v", "type": VLEN}]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (REFERENCE, ID),
        (REFERENCE, [f"datasets/{ID}", None, HERE, ""]),
        (VLEN, [[ID], []]),
        (ARRAY, [ID, ID]),
        (NESTED, [[ID, "x"], [ID, ID]]),
        (NESTED, [[[ID, "x"], [ID]], [[ID, "y"], []]]),
        ({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}, {"id": ID, "selection": []}),
        (PAIR, None),
    ],
)
def test_references_are_moved_and_come_back(kind: Any, value: Any) -> None:
    record = {"id": ID, "root": HERE, **of_type(kind, value)}
    data = add_checksum(orjson.dumps(record))
    there = moved(data, HERE, THERE)
    check_checksum(there, "key")
    assert (ID.encode() in there, HERE.encode() in there) == (False, False)
    back = parse_json(moved(there, THERE, HERE))
    assert {name: back[name] for name in record} == record
