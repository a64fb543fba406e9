"""What a folder takes: against the sum of its objects, whatever names they have."""

from __future__ import annotations

import pytest

from hsparse.dn.service import DataService
from hsparse.quotas import folder_usage as folder_count
from hsparse.quotas.folder_usage import OBJECT_BYTES, Name, count_folder, names_below
from hsparse.sn.data_nodes import owners as key_pages
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.wire.record_message import CreateObject
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

ROOTS = [f"g-00000000-0000000{n}-8888-888888-88888{(n + 8) % 16:x}" for n in range(3)]


@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_a_folder_takes_what_is_below_it(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(key_pages, "KEYS_AT_ONCE", page)
    monkeypatch.setattr(folder_count, "READS_AT_ONCE", page)
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = DataService(store, clock)
    owners = Owners(FixedNodes({"dn-001": node}))
    told: list[Name] = []
    assert await count_folder(owners, "/home/ann", told.append) == 0
    domains = {
        "/home/ann": None,
        "/home/ann/a": None,
        "/home/ann/a/x.h5": ROOTS[0],
        "/home/ann/again.h5": ROOTS[0],
        "/home/ann/y.h5": ROOTS[1],
        "/home/anna/z.h5": ROOTS[2],
    }
    for path, root in domains.items():
        await owners.apply(CreateObject(path, {"owner": "ann"} | ({} if root is None else {"root": root})))
    sizes = {0: (9, 5000), 1: (4096, 4097), 2: (10**6,)}
    for number, all_of_it in sizes.items():
        for place, size in enumerate(all_of_it):
            key = f"db/{ROOTS[number][2:19]}/d/0000-000000-00000{place}/0"
            await store.put(key, bytes(size))
    await store.put("home/ann/file.h5", bytes(10**6))  # no domain's
    below = [one async for some in names_below(owners, "/home/ann") for one in some]
    assert {name.path: name.root for name in below} == {
        path: root for path, root in domains.items() if path.startswith("/home/ann/")
    }
    expected = 4 * OBJECT_BYTES + sum(max(size, OBJECT_BYTES) for n in (0, 1) for size in sizes[n])
    assert await count_folder(owners, "/home/ann", told.append) == expected
    assert told == []
    await store.put("home/ann/broken.h5/.domain.json", bytes(5000))
    assert await count_folder(owners, "/home/ann", told.append) == expected + 5000
    assert [(name.path, name.record) for name in told] == [("/home/ann/broken.h5", {})]
    await node.close()
