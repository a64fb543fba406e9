"""Quotas as users meet them: what is refused, what still works, what makes room again, and objects that stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from hsparse.dn.service import DataService
from hsparse.errors import Busy, OverQuota
from hsparse.model.acl import Principal, Right
from hsparse.quotas import folder_usage
from hsparse.quotas.folder_usage import COUNT_SECONDS, FolderUsage
from hsparse.quotas.quotas import KNOWN_SECONDS, DomainNames, Quotas, folders_above
from hsparse.quotas.settings import QuotaSettings
from hsparse.sn.domains import domain_deletion as kept_objects
from hsparse.sn.domains.domain_deletion import DomainDeletions
from hsparse.sn.request import Domain
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.record_message import DeleteObject, ForgetFirstName
from tests.support.rest_client import BINARY, Reply, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

USERS = (Principal("ann"), Principal("ben"), Principal("admin", admin=True))
Start = Callable[..., Awaitable[RestClient]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
async def start(store: MemoryStore, clock: ManualClock) -> AsyncIterator[Start]:
    """Start a service node with these settings, over one data node."""
    node = DataService(store, clock)
    clients = []

    async def begin(**settings: int) -> RestClient:
        chosen = ServiceSettings(single_user=None, min_chunk_size=1)
        added = (QuotaSettings(**settings),)
        clients.append(await RestClient(node, clock, *USERS, settings=chosen, added=added).open())
        return clients[-1]

    yield begin
    for client in clients:
        await client.close()
    await node.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are waited for as long as they take."""
    monkeypatch.setattr(folder_usage, "COUNT_WAIT_SECONDS", 60.0)


KIB = 1024
LIMIT = 100 * KIB
DOMAIN = "/home/ann/x.h5"
ANN = Principal("ann")
RIGHTS = {"create": True, "read": True}
CHUNKED = {"layout": {"class": "H5D_CHUNKED", "dims": [4 * KIB]}}
INT8 = {"type": "H5T_STD_I8LE", "maxdims": [0], "creationProperties": CHUNKED}


async def filled(rest: RestClient, size: int = 64 * KIB, domain: str = DOMAIN, **options: Any) -> str:
    """Create a domain with a dataset of so many bytes; return the dataset's path."""
    assert (await rest("PUT", "/", {}, domain=domain, **options)).status == 201
    body = INT8 | {"shape": [size]}
    path = f"/datasets/{(await rest('POST', '/datasets', body, domain=domain, **options))['id']}"
    reply = await rest("PUT", f"{path}/value", bytes(range(256)) * (size // 256), domain=domain, **options)
    assert reply.status == 200, reply.body
    return path


async def write(
    rest: RestClient, path: str, size: int = 64 * KIB, domain: str = DOMAIN, **options: Any
) -> Reply:
    """Write so many zero bytes over a dataset's first ones."""
    return await rest("PUT", f"{path}/value", bytes(size), domain=domain, **options)


async def limit(rest: RestClient, folder: str, nbytes: Any) -> None:
    """Set the quota of a folder, None for none."""
    assert (await rest("PUT", "/quota", {"bytes": nbytes}, domain=folder, user="admin")).status == 200


async def make_folder(
    rest: RestClient, path: str, nbytes: int | None = None, rights: dict[str, bool] | None = None
) -> None:
    """Make a folder of the admin in which ann has rights, with a quota."""
    assert (await rest("PUT", "/", {"folder": 1}, domain=path, user="admin")).status == 201
    if rights is not None:
        assert (await rest("PUT", "/acls/ann", rights, domain=path, user="admin")).status == 201
    if nbytes is not None:
        await limit(rest, path, nbytes)


def is_over(reply: Reply, folder: str = "/home/ann") -> bool:
    if reply.status != 413 or reply["error"]["kind"] != "over_quota":
        return False
    message = reply["error"]["message"]
    assert f"The quota of {folder} is" in message
    assert "delete something below it, or ask an admin for more" in message
    return True


async def test_what_grows_is_refused_and_all_else_works(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    path = await filled(rest)
    rest.domain = DOMAIN
    root = (await rest("GET", "/"))["root"]
    assert (await rest("PUT", f"{path}/attributes/a", {"type": "H5T_STD_I8LE", "value": 1})).status == 201
    await limit(rest, "/home/ann", 1)
    attribute = {"type": "H5T_STD_I8LE", "value": 1}
    grows: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("PUT", f"{path}/value", b"a", {"select": "[0:1]"}),
        ("PUT", f"{path}/value", {"value": [1], "append": 1}, {}),
        ("PUT", f"{path}/value", {"value": 1}, {"query": "_ == 7"}),
        ("PUT", f"{path}/chunks/0/value", b"a", {}),
        ("PUT", f"{path}/shape", {"extend": 1}, {}),
        ("PUT", f"{path}/shape", {"shape": [65 * KIB]}, {}),
        ("PUT", f"{path}/attributes/b", attribute, {}),
        ("PUT", f"{path}/attributes/a/value", {"value": 2}, {}),
        ("PUT", f"/groups/{root}/attributes", {"obj_ids": {root: {"attributes": {"c": attribute}}}}, {}),
        ("PUT", f"/groups/{root}/links/l", {"id": root}, {}),
        ("PUT", f"/groups/{root}/links", {"links": {"l": {"id": root}}}, {}),
        ("POST", "/groups", {}, {}),
        ("POST", "/datasets", INT8 | {"shape": [1]}, {}),
        ("POST", "/datatypes", {"type": "H5T_STD_I8LE"}, {}),
        ("PUT", "/", {}, {"domain": "/home/ann/y.h5"}),
        ("PUT", "/", {"linked_domain": DOMAIN}, {"domain": "/home/ann/y.h5"}),
        ("PUT", "/", {"folder": 1}, {"domain": "/home/ann/y"}),
    ]  # fmt: skip
    for method, where, body, options in grows:
        reply = await rest(method, where, body, **options)
        assert is_over(reply), (method, where, reply.body)
    works: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("GET", f"{path}/value", None, {}),
        ("POST", f"{path}/value", {"points": [1]}, {}),
        ("GET", f"{path}/chunks", None, {}),
        ("PUT", "/acls/ben", {"read": True}, {}),
        ("PUT", "/", {"flush": 1}, {}),
        ("PUT", "/", {"rescan": 1}, {}),
        ("PUT", f"{path}/shape", {"shape": [60 * KIB]}, {}),
        ("DELETE", f"{path}/attributes/a", None, {}),
        ("DELETE", path, None, {}),
        ("DELETE", "/", None, {}),
    ]
    for method, where, body, options in works:
        reply = await rest(method, where, body, **options)
        assert reply.status in (200, 201, 204), (method, where, reply.body)


async def test_users_have_a_quota_each(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    path = await filled(rest)
    assert is_over(await write(rest, path))
    assert is_over(await write(rest, path, user="admin"))
    await filled(rest, domain="/home/ben/x.h5", user="ben")
    await filled(rest, domain="/top.h5", user="admin", size=128 * KIB)


async def test_a_deletion_makes_room(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    await filled(rest)
    assert is_over(await rest("PUT", "/", {"folder": 1}, domain="/home/ann/more")) is False
    path = await filled(rest, size=16 * KIB, domain="/home/ann/more/y.h5")
    more = 16 * KIB, "/home/ann/more/y.h5"
    assert is_over(await write(rest, path, *more))
    assert (await rest("DELETE", "/", domain=DOMAIN, wait=60)).status == 200
    assert (await write(rest, path, *more)).status == 200


async def test_what_is_written_over_is_counted_once(start: Start) -> None:
    """The bytes let through add up to more than the quota, what is stored does not."""
    rest = await start(home_quota=200 * KIB)
    path = await filled(rest)
    for _ in range(6):
        assert (await write(rest, path)).status == 200
    shown = await rest("GET", "/quota", domain="/home/ann")
    assert 64 * KIB < shown["used"] < 100 * KIB


async def test_one_value_for_many_elements_takes_what_it_writes(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    path = await filled(rest, 256)
    assert (await rest("PUT", f"{path}/shape", {"shape": [300 * KIB]}, domain=DOMAIN)).status == 201
    body = {"value": 7, "element_count": 1}
    assert is_over(await rest("PUT", f"{path}/value", body, domain=DOMAIN))


async def test_groups_on_the_way_to_a_new_one_count_too(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    assert (await rest("PUT", "/", {}, domain=DOMAIN)).status == 201
    for depth, over in ((5, False), (50, True)):
        path = "/".join(f"g{number}" for number in range(depth))
        reply = await rest("POST", "/groups", {"h5path": f"/{depth}/{path}"}, domain=DOMAIN, implicit=1)
        assert is_over(reply) if over else reply.status == 201, reply.body


async def test_a_folder_in_a_folder_counts_for_both(start: Start) -> None:
    rest = await start()
    for folder, nbytes in (("/lab", 200 * KIB), ("/lab/ann", LIMIT)):
        await make_folder(rest, folder, nbytes, RIGHTS)
    path = await filled(rest, domain="/lab/ann/x.h5")
    assert is_over(await write(rest, path, domain="/lab/ann/x.h5"), "/lab/ann")
    other = await filled(rest, domain="/lab/y.h5")
    assert (await write(rest, other, 16 * KIB, "/lab/y.h5", select="[0:16384]")).status == 200
    assert is_over(await write(rest, other, domain="/lab/y.h5"), "/lab")
    outer, inner = [(await rest("GET", "/quota", domain=one))["used"] for one in ("/lab", "/lab/ann")]
    assert outer > inner > 64 * KIB


async def test_a_node_that_starts_knows_the_last_count(start: Start) -> None:
    first = await start(home_quota=LIMIT)
    path = await filled(first)
    assert (await first("GET", "/quota", domain="/home/ann"))["used"] > 64 * KIB
    second = await start(home_quota=LIMIT)
    assert is_over(await write(second, path))


async def test_a_node_learns_what_another_let_through(start: Start, clock: ManualClock) -> None:
    first, second = await start(home_quota=LIMIT), await start(home_quota=LIMIT)
    assert (await second("PUT", "/", {"folder": 1}, domain="/home/ann/a")).status == 201
    path = await filled(first)
    assert (await first("GET", "/quota", domain="/home/ann")).status == 200
    assert is_over(await write(second, path)) is False
    clock.time += KNOWN_SECONDS
    assert (await first("GET", "/quota", domain="/home/ann")).status == 200
    clock.time += 2 * KNOWN_SECONDS
    await first("DELETE", "/", domain=DOMAIN, wait=60)
    assert (await second("PUT", "/", {}, domain=DOMAIN)).status == 201


async def test_only_admins_set_a_quota_and_readers_see_it(start: Start, clock: ManualClock) -> None:
    rest = await start()
    await filled(rest)
    folder = {"domain": "/home/ann"}
    assert (await rest("PUT", "/quota", {"bytes": 1}, **folder)).status == 403
    assert (await rest("PUT", "/quota", b"{", **folder)).status == 403, "the body is read for admins alone"
    assert (await rest("GET", "/quota", **folder)).facts == {"bytes": None, "used": None, "counted": None}
    assert (await rest("PUT", "/quota", {"bytes": LIMIT}, user="admin", **folder)).facts == {"bytes": LIMIT}
    shown = (await rest("GET", "/quota", user="ben", **folder)).facts
    assert shown == {"bytes": LIMIT, "used": shown["used"], "counted": clock.now()}
    assert 64 * KIB < shown["used"] < LIMIT
    assert (await rest("PUT", "/quota", {"bytes": None}, user="admin", **folder)).status == 200
    assert (await rest("GET", "/quota", **folder)).facts == {"bytes": None, "used": None, "counted": None}
    for body in ({}, *({"bytes": wrong} for wrong in (-1, True, "1GB", 2**63)), {"bytes": 1, "a": 1}):
        assert (await rest("PUT", "/quota", body, user="admin", **folder)).status == 400
    for path in (DOMAIN, "/"):
        assert (await rest("GET", "/quota", domain=path, user="admin")).status == 400
        assert (await rest("PUT", "/quota", {"bytes": 1}, domain=path, user="admin")).status == 400


async def test_a_quota_of_its_own_comes_before_that_of_homes(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    path = await filled(rest)
    assert is_over(await write(rest, path))
    await limit(rest, "/home/ann", 2 * LIMIT)
    assert (await write(rest, path)).status == 200
    await limit(rest, "/home/ann", None)
    assert (await rest("GET", "/quota", domain="/home/ann", user="admin"))["bytes"] is None
    assert (await write(rest, path)).status == 200
    await limit(rest, "/home/ann", "default")
    assert is_over(await write(rest, path))


async def test_nobody_gets_out_of_a_quota_by_a_deletion(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    await filled(rest)
    kept = {"domain": DOMAIN, "keep_root": 1}
    assert (await rest("DELETE", "/", **kept)).status == 403
    link = {"linked_domain": DOMAIN}
    assert (await rest("PUT", "/", link, domain="/home/ann/y.h5")).status == 201
    for other in (DOMAIN, "/home/ann", "/home/ann/none.h5"):
        assert (await rest("DELETE", "/", domain="/home/ann/y.h5", keep_root=1)).status == 200
        assert (await rest("DELETE", "/", linked_domain=other, **kept)).status == 403
        assert (await rest("PUT", "/", link, domain="/home/ann/y.h5")).status == 201
    assert (await rest("DELETE", "/", **kept)).status == 200, "it has another name, which is counted"
    assert (await rest("DELETE", "/", domain="/home/ann/y.h5", wait=60)).status == 200
    await limit(rest, "/home/ann", 1)
    assert (await rest("DELETE", "/", domain="/home/ann")).status == 403, "else it came back without one"
    assert (await rest("DELETE", "/", domain="/home/ann", user="admin")).status == 200


async def test_a_domain_moves_to_where_it_has_room(start: Start) -> None:
    rest = await start(home_quota=LIMIT)
    await filled(rest)
    for folder, nbytes in (("/small", 50 * KIB), ("/large", LIMIT)):
        await make_folder(rest, folder, nbytes, RIGHTS)
    link = {"linked_domain": DOMAIN}
    assert is_over(await rest("PUT", "/", link, domain="/small/x.h5"), "/small")
    assert (await rest("PUT", "/", link, domain="/large/x.h5")).status == 201
    moved = await rest("DELETE", "/", domain=DOMAIN, keep_root=1, linked_domain="/large/x.h5")
    assert moved.status == 200
    assert (await rest("GET", "/quota", domain="/home/ann", user="admin"))["used"] == 0
    assert (await rest("GET", "/quota", domain="/large", user="admin"))["used"] > 64 * KIB


async def test_the_quotas_of_all_names_hold_for_what_is_written_by_one(start: Start) -> None:
    """Else one name would be filled without limit, dropped, and the next one given."""
    rest = await start(home_quota=LIMIT)
    path = await filled(rest)
    await make_folder(rest, "/lab", rights=RIGHTS)
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain="/lab/x.h5")).status == 201

    for full, name in (("/home/ann", "/lab/x.h5"), ("/lab", DOMAIN)):
        assert (await write(rest, path, 1, name, select="[0:1]")).status == 200
        await limit(rest, full, 1)
        assert is_over(await write(rest, path, 1, name, select="[0:1]"), full)
        await limit(rest, full, None)
    await limit(rest, "/lab", 1)
    dropped = await rest("DELETE", "/", domain="/lab/x.h5", keep_root=1, linked_domain=DOMAIN)
    assert dropped.status == 200
    assert (await write(rest, path, 1, select="[0:1]")).status == 200


async def test_a_request_keeps_its_room_until_it_ends(start: Start) -> None:
    quotas = (await start(home_quota=LIMIT)).service.component(Quotas)
    with quotas.growth(DomainNames(DOMAIN), ANN) as growth:
        await growth.take(96 * KIB)
        with quotas.growth(DomainNames(DOMAIN), ANN) as other, pytest.raises(Busy, match="may be reached"):
            await other.take(4 * KIB + 1)
    with quotas.growth(DomainNames(DOMAIN), ANN) as other:  # it has stored nothing, as the next count sees
        await other.take(LIMIT)


@pytest.mark.parametrize("announced", [False, True])
async def test_a_body_takes_room_when_it_is_there(
    start: Start, monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    """Else who announces bodies and sends none would keep others out."""
    rest = await start(home_quota=LIMIT)
    path = await filled(rest, 4 * KIB)
    taken: list[int] = []
    begun, rest_sent = asyncio.Event(), asyncio.Event()
    check, add = FolderUsage.check, FolderUsage.add

    async def checked(usage: FolderUsage, nbytes: int, limit: int) -> None:
        await check(usage, nbytes, limit)
        begun.set()

    monkeypatch.setattr(FolderUsage, "check", checked)
    monkeypatch.setattr(FolderUsage, "add", lambda usage, nbytes: (taken.append(nbytes), add(usage, nbytes)))
    size = 60 * KIB

    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(100)
        await rest_sent.wait()
        yield bytes(4 * KIB - 100)

    url, headers = f"{rest.url}{path}/value", {"Authorization": "ann", "Content-Type": BINARY}
    if announced:
        headers["Content-Length"] = str(size)

    async def send() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.put(url, params={"domain": DOMAIN}, data=pieces(), headers=headers) as response,
        ):
            return response.status

    sent = asyncio.create_task(send())
    await begun.wait()
    assert taken == []
    with rest.service.component(Quotas).growth(DomainNames(DOMAIN), ANN) as other:
        await other.take(80 * KIB)
    taken.clear()
    if announced:
        sent.cancel()
        return
    rest_sent.set()
    assert await sent == 200
    assert taken == [4 * KIB]


async def test_numbers_are_for_who_may_read_the_folder(start: Start) -> None:
    rest = await start()
    for folder, rights in (("/secret", {"read": False}), ("/secret/in", RIGHTS)):
        await make_folder(rest, folder, rights=rights)
    await limit(rest, "/secret", 4321)
    assert (await rest("GET", "/quota", domain="/secret", user="admin"))["used"] == 4 * KIB
    replies = [await rest("PUT", "/", {}, domain="/secret/in/x.h5", user=user) for user in ("ann", "admin")]
    assert is_over(replies[1], "/secret")
    message = replies[0]["error"]["message"]
    assert replies[0].status == 413
    assert "A quota above /secret/in/x.h5, of a folder that ann may not read, leaves no room" in message
    assert not any(char.isdigit() for char in message.replace("x.h5", ""))
    quotas = rest.service.component(Quotas)
    await limit(rest, "/secret", LIMIT)
    with (
        quotas.growth(DomainNames("/secret/in/x.h5"), ANN) as one,
        quotas.growth(DomainNames("/secret/in/x.h5"), ANN) as other,
    ):
        await one.take(90 * KIB)
        with pytest.raises(Busy, match=r"^A quota above /secret/in/x\.h5 may be reached"):
            await other.take(20 * KIB)


async def test_a_damaged_folder_stops_no_write_below_it(start: Start, store: MemoryStore) -> None:
    rest = await start(home_quota=LIMIT)
    path = await filled(rest, 4 * KIB)
    await store.put("home/.domain.json", b"{")
    again = await start(home_quota=LIMIT)
    assert (await write(again, path, 4 * KIB)).status == 200


async def test_a_damaged_domain_stops_no_count_and_no_move(
    start: Start, store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rest = await start(home_quota=LIMIT)
    await filled(rest)
    newer = b'{"owner": "ann", "schema": {"version": 1, "readFeatures": ["sorcery"]}}'
    for name, record in (("a", b"{"), ("b", newer), ("z", b"[]")):
        await store.put(f"home/ann/{name}.h5/.domain.json", record)
    for _ in range(2):
        used = (await rest("GET", "/quota", domain="/home/ann"))["used"]
        assert 76 * KIB < used < 100 * KIB
        clock.time += COUNT_SECONDS
    lines = [one for one in caplog.messages if "do not count for /home/ann" in one]
    assert len(lines) == 3, lines
    assert (await rest("DELETE", "/", domain=DOMAIN, keep_root=1)).status == 403
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain="/home/ann/m.h5")).status == 201
    assert (await rest("DELETE", "/", domain=DOMAIN, keep_root=1)).status == 200


async def test_who_is_refused_by_one_folder_takes_nothing_of_another(start: Start) -> None:
    rest = await start()
    for folder, nbytes in (("/lab", 4 * KIB), ("/lab/ann", LIMIT)):
        await make_folder(rest, folder, nbytes)
    quotas = rest.service.component(Quotas)
    with quotas.growth(DomainNames("/lab/ann/x.h5"), ANN) as growth:
        for _ in range(3):
            with pytest.raises(OverQuota, match="The quota of /lab is"):
                await growth.take(60 * KIB)
        await limit(rest, "/lab", LIMIT)
        with quotas.growth(DomainNames("/lab/ann/x.h5"), ANN) as other:
            await other.take(90 * KIB)


@pytest.mark.parametrize(
    ("path", "above"),
    [("/", ()), ("/a", ()), ("/a/b", ("/a",)), ("/home/ann/a/b.h5", ("/home/ann/a", "/home/ann", "/home"))],
)
def test_the_folders_above_a_path(path: str, above: tuple[str, ...]) -> None:
    assert folders_above(path) == above


FIRST, SECOND, OTHERS = "/home/ann/a.h5", "/home/ann/b.h5", "/home/ben/b.h5"
EVERY, NONE = ({right.value: given for right in Right} for given in (True, False))


async def named_twice(start: Start, second: str = SECOND, user: str = "ann") -> tuple[RestClient, str]:
    """Return a client, and the root of a domain to which the user has given a second name."""
    rest = await start(home_quota=100_000)
    assert (await rest("PUT", "/", {}, domain=FIRST)).status == 201
    assert (await rest("PUT", "/acls/ben", EVERY, domain=FIRST)).status == 201
    assert (await rest("PUT", "/", {"linked_domain": FIRST}, domain=second, user=user)).status == 201
    return rest, (await rest("GET", "/", domain=FIRST))["root"]


async def delete(rest: RestClient, path: str, other: str | None = None, user: str = "ann") -> Reply:
    options = {} if other is None else {"linked_domain": other}
    return await rest("DELETE", "/", domain=path, keep_root=1, user=user, **options)


@pytest.mark.parametrize("said", [False, True])
async def test_two_deletions_at_once_leave_a_name(
    start: Start, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    rest, root = await named_twice(start)
    both, remove = asyncio.Barrier(2), DomainDeletions.remove

    async def at_once(deletions: DomainDeletions, domain: Domain, **options: Any) -> None:
        await both.wait()
        await remove(deletions, domain, **options)
        await both.wait()

    monkeypatch.setattr(DomainDeletions, "remove", at_once)
    pairs = ((FIRST, SECOND), (SECOND, FIRST))
    replies = await asyncio.gather(*(delete(rest, path, other if said else None) for path, other in pairs))
    assert 409 in [reply.status for reply in replies]
    left = [path for path, _ in pairs if (await rest("GET", f"/groups/{root}", domain=path)).status == 200]
    assert left == [path for (path, _), reply in zip(pairs, replies, strict=True) if reply.status == 409]


async def test_without_a_name_and_a_place_for_it_the_objects_go(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, root = await named_twice(start)
    remove, owners = DomainDeletions.remove, rest.service.owners

    async def raced(deletions: DomainDeletions, domain: Domain, **options: Any) -> None:
        await remove(deletions, domain, **options)
        await owners.apply(DeleteObject(SECOND))
        assert (await rest("PUT", "/", {}, domain=FIRST)).status == 201

    monkeypatch.setattr(DomainDeletions, "remove", raced)
    assert (await delete(rest, FIRST, SECOND)).status == 200
    await rest.service.component(DomainDeletions).close()
    assert (await owners.read(root))[0].failure is not None
    assert (await rest("GET", "/", domain=FIRST)).status == 200


async def test_one_name_below_nested_quotas_is_looked_for_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*arguments: object) -> None:
        raise AssertionError("the name that was relied on is there")

    rest = await start(home_quota=100_000)
    folder, first, second = (f"/home/ann/deep{name}" for name in ("", "/a.h5", "/b.h5"))
    assert (await rest("PUT", "/", {"folder": 1}, domain=folder)).status == 201
    await limit(rest, folder, 50_000)
    assert (await rest("PUT", "/", {}, domain=first)).status == 201
    assert (await rest("PUT", "/", {"linked_domain": first}, domain=second)).status == 201
    monkeypatch.setattr(kept_objects, "require_kept", never)
    assert (await delete(rest, first)).status == 200
    assert (await rest("GET", "/", domain=second)).status == 200


async def test_a_name_that_will_open_nothing_is_none(start: Start) -> None:
    rest, _ = await named_twice(start, OTHERS, "ben")
    assert (await delete(rest, FIRST, OTHERS)).status == 403
    assert (await rest("PUT", "/", {"linked_domain": FIRST}, domain=SECOND)).status == 201
    assert (await delete(rest, FIRST, OTHERS)).status == 200, "the other one of ann is"
    assert (await delete(rest, SECOND, OTHERS)).status == 403
    assert (await delete(rest, OTHERS, user="ben")).status == 200, "it opens nothing"
    assert (await rest("GET", "/", domain=SECOND)).status == 200


@pytest.mark.parametrize("kept", [0, 1])
async def test_a_second_name_goes_as_the_first_one_stays(start: Start, kept: int) -> None:
    rest, root = await named_twice(start, OTHERS, "ben")
    assert (await rest("PUT", "/acls/ben", NONE, domain=FIRST)).status == 201
    assert (await rest("DELETE", "/", domain=OTHERS, user="ben", keep_root=kept)).status == 200
    assert (await rest("GET", f"/groups/{root}", domain=FIRST)).status == 200


async def test_what_is_kept_for_want_of_a_right_is_checked_too(start: Start) -> None:
    """The only name that the quota counts cannot go alone, also where nobody asked for that."""
    rest, root = await named_twice(start, OTHERS, "ben")
    created = (await rest("GET", "/", domain=FIRST))["created"]
    await rest.service.owners.apply(ForgetFirstName(OTHERS, FIRST, created))  # as an older hsparse gave it
    assert (await rest("PUT", "/acls/ben", NONE, domain=FIRST)).status == 201
    assert (await rest("DELETE", "/", domain=OTHERS, user="ben")).status == 403
    assert (await rest("DELETE", "/", domain=OTHERS, user="ben", linked_domain=FIRST)).status == 200
    assert (await rest("GET", f"/groups/{root}", domain=FIRST)).status == 200
