"""A domain is brought back to a snapshot, and what is different between two is said."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hsparse.dn.data_settings import DataSettings
from hsparse.errors import StoreFailed
from hsparse.model.ids import chunk_of_key
from hsparse.versions import handlers, versioned_store
from hsparse.versions.restoring import Restoring, Step
from hsparse.versions.versioned_store import VersionedStore
from tests.versions.conftest import DENSE, DOMAIN, SPARSE, Versioned

STRING = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


@pytest.mark.parametrize("past", [False, True], ids=["one bucket", "several"], indirect=True)
@pytest.mark.parametrize("layout", [DENSE, SPARSE], ids=["dense", "sparse"])
async def test_a_domain_is_brought_back(past: Versioned, layout: dict[str, Any]) -> None:
    kept, gone = [await past.create(name, 30, layout) for name in ("kept", "gone")]
    for id in (kept, gone):
        await past.write(id, 0, range(30))
    await past.snapshot()
    root = (await past.done("GET", "/"))["root"]
    await past.done("PUT", f"/datasets/{kept}/shape", {"shape": [12]})
    await past.write(kept, 0, [7])
    await past.done("DELETE", f"/datasets/{gone}")
    await past.done("DELETE", f"/groups/{root}/links/gone")
    new = await past.create("new", 10, layout)
    await past.write(new, 0, range(10))
    await past.snapshot()
    assert (await past.done("POST", "/snapshots/1/restore", {}))["changed"] > 0
    assert await past.links() == {"kept": kept, "gone": gone}
    for id in (kept, gone):
        assert await past.read(id) == list(range(30))
    assert (await past.rest("GET", f"/datasets/{new}")).status in (404, 410)
    await past.write(kept, 0, [9])  # it goes on being changed
    await past.done("PUT", f"/datasets/{kept}/shape", {"shape": [40]})
    assert await past.read(kept) == [9, *range(1, 30), *[0] * 10]
    at_2 = await past.links(domain=f"{DOMAIN}@2")
    assert set(at_2) == {"kept", "new"}
    assert await past.read(at_2["kept"], domain=f"{DOMAIN}@2") == [7, *range(1, 12)]
    await past.done("POST", "/snapshots/2/restore", {})
    assert await past.read(kept) == [7, *range(1, 12)]
    assert await past.read(new) == list(range(10))
    assert (await past.done("POST", "/snapshots/2/restore", {}))["changed"] == 0


@pytest.mark.parametrize("layout", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("step", list(Step))
async def test_a_write_beside_a_restore_brings_no_other_element_back(
    past: Versioned, monkeypatch: pytest.MonkeyPatch, step: Step, layout: dict[str, Any]
) -> None:
    """Chunks that were not there, and were written to meanwhile, go; what was created meanwhile stays."""
    id = await past.create("kept", 8, layout)
    await past.snapshot()
    await past.write(id, 0, range(1, 7))
    run, created = Restoring.run, []

    async def beside(restoring: Restoring, now: Step) -> None:
        if now is step:
            await past.write(id, 7, [9])
            body = {"type": "H5T_STD_I32LE", "shape": [4]}
            created.append((await past.done("POST", "/datasets", body))["id"])
            await past.done("PUT", f"/datasets/{created[0]}/value", {"value": [1, 2, 3, 4]})
        await run(restoring, now)

    monkeypatch.setattr(Restoring, "run", beside)
    await past.done("POST", "/snapshots/1/restore", {})
    assert (await past.read(id))[:7] == [0] * 7
    assert await past.read(created[0]) == [1, 2, 3, 4]


async def test_a_dataset_comes_back_in_place_of_another_one_of_its_id(past: Versioned) -> None:
    id = await past.filled(30)
    await past.snapshot()
    await past.done("DELETE", f"/datasets/{id}")
    body = {"id": id, "type": "H5T_STD_I64LE", "shape": [4]}
    await past.restart()
    await past.done("POST", "/datasets", body)
    await past.done("PUT", f"/datasets/{id}/value", {"value": [1, 2, 3, 4]})
    (found,) = (await past.done("GET", "/snapshots/1/diff")).facts["datasets"]
    assert (found["chunks"], found["elements"]) == (3, None)
    await past.done("POST", "/snapshots/1/restore", {})
    assert await past.read(id) == list(range(30))


async def test_the_root_group_comes_back_whose_changes_are_beside_it(past: Versioned) -> None:
    """They are records, too: neither chunks nor unchanged, and their ids are the domain's."""
    past.data = DataSettings(large_record_size=1)
    await past.restart()
    links = {"one": await past.create("one", 1, DENSE)}
    await past.snapshot()
    links["two"] = await past.create("two", 1, DENSE)
    await past.snapshot()
    await past.create("three", 1, DENSE)
    for to in ({"to": 2}, {}):
        found = await past.done("GET", "/snapshots/1/diff", **to)
        assert [one["path"] for one in found["groups"]] == ["/"]
    await past.done("POST", "/snapshots/2/restore", {})
    assert await past.links() == links
    await past.restart()
    assert await past.links() == links


async def test_what_was_restored_is_read_though_a_node_could_not_read_the_note(
    past: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, restore = VersionedStore._tell, VersionedStore._restore

    async def fail(store: VersionedStore, root: str) -> dict[str, Any]:
        if not restored:
            return await tell(store, root)
        raise StoreFailed("The store answered 503.")

    async def note(store: VersionedStore, **arguments: Any) -> dict[str, Any]:
        restored.append(True)
        return await restore(store, **arguments)

    restored = list[bool]()
    id = await past.filled(10)
    await past.snapshot()
    await past.write(id, 0, [9])
    monkeypatch.setattr(VersionedStore, "_tell", fail)
    monkeypatch.setattr(VersionedStore, "_restore", note)
    assert (await past.rest("POST", "/snapshots/1/restore", {})).status >= 500
    assert await past.read(id) == list(range(10))


async def test_what_was_restored_is_read_though_the_store_did_not_answer(
    past: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stored after the restore had failed."""
    late, landing = list[asyncio.Task[Any]](), asyncio.Event()

    async def wait(seconds: float) -> None:
        landing.set()
        await asyncio.gather(*late)

    monkeypatch.setattr(versioned_store, "asyncio", SimpleNamespace(sleep=wait))
    id = await past.filled(10)
    await past.snapshot()
    await past.write(id, 0, [9] * 10)

    async def around(method: str, key: str, data: Any, call: Any) -> Any:
        async def store() -> Any:
            await landing.wait()
            return await call(data)

        if method != "put_if_match" or chunk_of_key(key) is None:
            return await call(data)
        late.append(asyncio.create_task(store()))
        raise StoreFailed("The store did not answer.")

    past.store.around = around  # type: ignore[method-assign]
    assert (await past.rest("POST", "/snapshots/1/restore", {})).status >= 500
    await past.read(id)  # which is remembered
    await wait(0)
    assert await past.read(id) == list(range(10))


async def test_what_is_different_is_said(past: Versioned) -> None:
    kept, gone, same = [await past.create(name, 30, SPARSE) for name in ("kept", "gone", "same")]
    for id in (kept, gone, same):
        await past.write(id, 0, range(30))
    await past.snapshot()
    await past.write(kept, 5, [7] * 10)
    await past.done("DELETE", f"/datasets/{gone}")
    await past.snapshot()
    new = await past.create("new", 10, DENSE)
    await past.write(new, 0, range(10))
    root = {"path": "/", "change": "changed"}
    first = (await past.done("GET", "/snapshots/1/diff", to=2)).facts
    assert first["groups"] == []
    assert first["datasets"] == [
        {"path": "/gone", "id": gone, "change": "deleted", "chunks": 3, "elements": 30},
        {"path": "/kept", "id": kept, "change": "changed", "chunks": 2, "elements": 9},
    ]
    since = (await past.done("GET", "/snapshots/2/diff")).facts
    assert since["datasets"] == [{"path": "/new", "id": new, "change": "created", "chunks": 1, "elements": 9}]
    assert [{key: one[key] for key in root} for one in since["groups"]] == [root]
    back = (await past.done("GET", "/snapshots/2/diff", to=1)).facts
    assert [one["change"] for one in back["datasets"]] == ["created", "changed"]
    assert (await past.rest("GET", "/snapshots/1/diff", to=9)).status == 404


@pytest.mark.parametrize(
    ("layout", "type"),
    [(DENSE, "H5T_STD_I32LE"), (SPARSE, "H5T_STD_I32LE"), (DENSE, STRING)],
    ids=["dense", "sparse", "strings"],
)
async def test_what_was_written_back_is_not_different(
    past: Versioned, layout: dict[str, Any], type: Any
) -> None:
    root = (await past.done("GET", "/"))["root"]
    body = {"type": type, "shape": [30], "creationProperties": {"layout": layout}}
    id = (await past.done("POST", "/datasets", body | {"link": {"id": root, "name": "kept"}}))["id"]

    async def write(value: int, start: int, stop: int) -> None:
        values = [str(value) if type is STRING else value] * (stop - start)
        select = f"[{start}:{stop}]"
        await past.done("PUT", f"/datasets/{id}/value", {"value": values}, select=select)

    async def different() -> list[tuple[int, int | None]]:
        found = (await past.done("GET", "/snapshots/1/diff"))["datasets"]
        return [(one["chunks"], None if type is STRING else one["elements"]) for one in found]

    await write(1, 0, 20)
    await past.snapshot()
    await write(2, 0, 12)
    assert await different() == [(2, None if type is STRING else 12)]
    await write(1, 0, 10)
    assert await different() == [(1, None if type is STRING else 2)]
    await past.snapshot()
    await past.done("POST", "/snapshots/1/restore", {})
    assert await different() == []


async def test_changes_are_followed_in_pages(past: Versioned) -> None:
    id = await past.filled(50, SPARSE)
    await past.snapshot()
    await past.write(id, 5, [7] * 10)
    await past.snapshot()
    await past.write(id, 45, [8])
    found: list[dict[str, Any]] = []
    page: dict[str, Any] = {"marker": ""}
    while page["marker"] is not None:
        page = (await past.done("GET", "/changes", since=0, limit=3, marker=page["marker"])).body
        assert (page["since"], page["until"], len(page["changes"]) <= 3) == (0, 2, True)
        found += page["changes"]
    assert {one["change"] for one in found} == {"created"}
    assert [one["chunk"] for one in found if one["id"] == id] == [None, "0", "1", "2", "3", "4"]
    later = (await past.done("GET", "/changes", since=1)).body
    chunks = [{"id": id, "chunk": chunk, "change": "changed"} for chunk in ("0", "1")]
    assert later == {"since": 1, "until": 2, "changes": chunks, "marker": None}
    assert (await past.done("GET", "/changes", since=2))["changes"] == []
    assert (await past.rest("GET", "/changes", since=9)).status == 404
    assert (await past.rest("GET", "/changes")).status == 400


async def test_changes_are_waited_for(past: Versioned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "SNAPSHOT_CHECK_SECONDS", 0.01)
    id = await past.create("kept", 10, DENSE)
    await past.snapshot()
    waiting = asyncio.create_task(past.done("GET", "/changes", since=1, wait=30))
    await past.write(id, 0, [1])
    await past.snapshot()
    assert (await waiting)["changes"][-1] == {"id": id, "chunk": "0", "change": "created"}
