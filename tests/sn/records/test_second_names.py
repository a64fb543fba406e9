"""Second names of a domain's objects: they open no more than the first name, on each request, and destroy nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hsparse.dn import record_changes
from hsparse.dn.service import DataService
from hsparse.errors import Busy
from hsparse.model.acl import Principal, Right
from hsparse.sn.domains.domain_deletion import DomainDeletions
from hsparse.sn.policies.access import find_domain
from hsparse.sn.records.second_names import forget_second_name
from hsparse.wire.message import Failure
from hsparse.wire.record_message import (
    AddSecondName,
    CreateObject,
    DeleteObject,
    ForgetFirstName,
    Outcome,
    PutRecord,
    RecordChange,
)
from tests.support.rest_client import RestClient, answered, refuses
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

FIRST, SECOND, THIRD = "/home/ann/a.h5", "/home/bob/b.h5", "/home/ann/c.h5"
ALL, NONE = ({right.value: given for right in Right} for given in (True, False))


@pytest.fixture
async def rest() -> AsyncIterator[RestClient]:
    """A client of ann, who has given bob all rights to her domain; he has given it a second name."""
    clock = ManualClock()
    node = DataService(MemoryStore(clock=clock), clock)
    users = (Principal("ann"), Principal("bob"), Principal("root", admin=True))
    rest = await RestClient(node, clock, *users).open()
    rest.domain = FIRST
    assert (await rest("PUT", "/", {})).status == 201
    assert (await rest("PUT", "/acls/bob", ALL)).status == 201
    await name(rest, SECOND, FIRST, "bob")
    yield rest
    await rest.close()
    await node.close()


async def name(rest: RestClient, path: str, of: str, user: str) -> None:
    assert (await rest("PUT", "/", {"linked_domain": of}, domain=path, user=user)).status == 201


async def root_of(rest: RestClient) -> str:
    return str((await rest("GET", "/", domain=FIRST, user="root"))["root"])


async def revoke(rest: RestClient, path: str = FIRST) -> None:
    assert (await rest("PUT", "/acls/bob", NONE, domain=path)).status == 201


async def status(rest: RestClient, path: str, user: str, method: str = "GET", **options: int) -> int:
    return (await rest(method, "/", domain=path, user=user, **options)).status


async def test_what_the_first_name_takes_the_second_does_not_give(rest: RestClient) -> None:
    root = await root_of(rest)
    assert await status(rest, SECOND, "bob") == 200
    assert (await rest("PUT", "/acls/bob", NONE | {"read": True})).status == 201
    assert await status(rest, SECOND, "bob") == 200
    await refuses(rest("POST", "/groups", {}, domain=SECOND, user="bob"), 403, SECOND)
    await revoke(rest)
    for path in ("/", f"/groups/{root}/links", "/datasets", "/map", "/acls", f"/files{SECOND}"):
        assert (await rest("GET", path, domain=SECOND, user="bob")).status == 403, path
    await name(rest, THIRD, FIRST, "ann")
    assert await status(rest, THIRD, "bob") == 403
    assert (await rest("PUT", "/acls/bob", {"read": True})).status == 201
    assert await status(rest, SECOND, "bob") == 200


async def test_a_listing_tells_no_more_than_the_first_name(rest: RestClient) -> None:
    root = await root_of(rest)
    attribute = {"type": "H5T_STD_I8LE", "value": 7}
    assert (await rest("PUT", f"/groups/{root}/attributes/n", attribute)).status in (200, 201)

    async def found() -> list[dict[str, object]]:
        reply = await rest("GET", "/domains", domain="/home/bob", user="bob", query="n == 7")
        return list(reply["domains"])

    assert [one["root"] for one in await found()] == [root]
    await revoke(rest)
    assert await found() == []
    listed = await rest("GET", "/domains", domain="/home/bob", user="bob", verbose=1)
    assert [(one["name"], "root" in one) for one in listed["domains"]] == [(SECOND, False)]


@pytest.mark.parametrize("keep_root", [0, 1])
async def test_without_the_right_the_name_alone_goes(rest: RestClient, keep_root: int) -> None:
    await revoke(rest)
    assert await status(rest, SECOND, "bob", "DELETE", keep_root=keep_root, wait=5) == 200
    assert await status(rest, SECOND, "bob") == 410
    assert (await rest("GET", f"/groups/{await root_of(rest)}")).status == 200


async def test_a_name_from_before_first_names_were_noted_goes_alone_too(rest: RestClient) -> None:
    created = (await rest("GET", "/"))["created"]
    await rest.service.owners.apply(ForgetFirstName(SECOND, FIRST, created))
    await revoke(rest)
    assert await status(rest, SECOND, "bob", "DELETE", wait=5) == 200
    assert (await rest("GET", f"/groups/{await root_of(rest)}")).status == 200


async def test_with_the_right_the_objects_go(rest: RestClient) -> None:
    root = await root_of(rest)
    assert await status(rest, SECOND, "bob", "DELETE", wait=5) == 200
    assert (await rest("GET", f"/groups/{root}")).status in (404, 410)


async def test_the_last_step_of_a_move_leaves_a_name_of_its_own(rest: RestClient) -> None:
    root = await root_of(rest)
    assert await status(rest, FIRST, "bob", "DELETE", keep_root=1) == 200
    assert (await rest("GET", f"/groups/{root}", domain=SECOND, user="bob")).status == 200
    assert await status(rest, SECOND, "bob", "DELETE", wait=5) == 200
    assert (await rest("GET", f"/groups/{root}", domain=SECOND, user="root")).status == 410


async def test_a_move_cut_short_opens_nothing_too_early_and_loses_nothing(
    rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*arguments: object, **options: object) -> None:
        raise Busy("The node dies here.")

    await name(rest, THIRD, FIRST, "ann")
    assert (await rest("PUT", "/acls/bob", ALL, domain=THIRD)).status == 201
    await revoke(rest)
    with monkeypatch.context() as before_the_deletion:
        before_the_deletion.setattr(DomainDeletions, "remove", die)
        assert await status(rest, FIRST, "ann", "DELETE", keep_root=1) == 503
    assert await status(rest, THIRD, "ann") == 200
    assert await status(rest, THIRD, "bob") == 403
    await rest.service.owners.apply(DeleteObject(FIRST))  # as a node does that dies after it
    assert await status(rest, THIRD, "bob") == 200
    assert await status(rest, SECOND, "bob") == 403


@pytest.mark.parametrize("refused", ["wait", "feature"])
async def test_a_deletion_that_is_refused_releases_no_second_name(rest: RestClient, refused: str) -> None:
    await name(rest, THIRD, FIRST, "ann")
    if refused == "feature":
        record = await rest.service.owners.record(FIRST)
        newer = record | {"schema": {"version": 1, "writeFeatures": ["spirals"]}}
        await rest.service.owners.apply(PutRecord(FIRST, newer))
    wait = 999 if refused == "wait" else 1
    assert await status(rest, FIRST, "ann", "DELETE", keep_root=1, wait=wait) == 400
    assert "released" not in (await rest.service.owners.record(THIRD))["firstName"]


async def test_a_move_by_the_owner_leaves_others_names_behind(rest: RestClient) -> None:
    root, clock = await root_of(rest), rest.service.clock
    await revoke(rest)
    await name(rest, THIRD, FIRST, "ann")
    assert await status(rest, FIRST, "ann", "DELETE", keep_root=1) == 200
    assert await status(rest, THIRD, "ann") == 200
    assert await status(rest, SECOND, "bob") == 403
    assert isinstance(clock, ManualClock)
    clock.time += 1
    # Another domain at the first name's path is not what the second name was given to.
    assert (await rest("PUT", "/", {"linked_domain": THIRD}, domain=FIRST)).status == 201
    assert (await rest("PUT", "/acls/bob", ALL)).status == 201
    assert await status(rest, SECOND, "bob") == 403
    assert await status(rest, SECOND, "root", "DELETE", wait=5) == 200
    assert (await rest("GET", f"/groups/{root}", domain=THIRD, user="ann")).status == 200


async def test_a_second_name_of_a_second_name_is_one_of_the_first(rest: RestClient) -> None:
    path = "/home/bob/again.h5"
    await name(rest, path, SECOND, "bob")
    assert await status(rest, SECOND, "bob", "DELETE", keep_root=1) == 200
    assert await status(rest, path, "bob") == 200
    await revoke(rest)
    assert await status(rest, path, "bob") == 403
    await answered(rest("PUT", "/", {"linked_domain": path}, domain=SECOND, user="bob"), 403)


async def test_who_gives_a_name_first_is_noted(rest: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob's request comes too late for a name that Ann gives after it has begun."""
    folder, path = "/home/ann/common", "/home/ann/common/x.h5"
    assert (await rest("PUT", "/", {"folder": 1}, domain=folder)).status == 201
    assert (await rest("PUT", "/acls/bob", {"create": True, "read": True}, domain=folder)).status == 201
    change = rest.service.owners.change
    begun: list[str] = []

    async def changed_later(*changes: RecordChange) -> list[Outcome]:
        if isinstance(changes[0], CreateObject) and changes[0].id == path and not begun:
            begun.append(path)
            await name(rest, path, FIRST, "ann")
        return await change(*changes)

    monkeypatch.setattr(rest.service.owners, "change", changed_later)
    assert (await rest("PUT", "/", {"linked_domain": FIRST}, domain=path, user="bob")).status == 409
    assert (await rest.service.owners.record(FIRST))["secondNames"] == {SECOND: "bob", path: "ann"}


async def test_a_name_that_cannot_be_noted_is_taken_back(
    rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = rest.service.owners.change

    async def busy(*changes: RecordChange) -> list[Outcome]:
        if isinstance(changes[0], AddSecondName):
            return [Outcome(failure=Failure.of(Busy("It is changed all the time.")))]
        return await change(*changes)

    monkeypatch.setattr(rest.service.owners, "change", busy)
    assert (await rest("PUT", "/", {"linked_domain": FIRST}, domain=THIRD)).status == 503
    assert await status(rest, THIRD, "ann") == 410
    assert await status(rest, FIRST, "ann") == 200


async def test_a_deleted_second_name_takes_no_place(
    rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that came and went after it leave a second name with the one who gave it."""
    monkeypatch.setattr(record_changes, "MAX_SECOND_NAMES", 2)
    await name(rest, THIRD, FIRST, "ann")
    refused = await rest("PUT", "/", {"linked_domain": FIRST}, domain="/home/ann/d.h5")
    assert (refused.status, "has 2 second names" in refused["error"]["message"]) == (413, True)
    assert await status(rest, "/home/ann/d.h5", "ann") == 410
    assert await status(rest, SECOND, "bob", "DELETE", keep_root=1) == 200
    for place in range(3):
        await name(rest, f"/home/ann/{place}.h5", FIRST, "ann")
        assert await status(rest, f"/home/ann/{place}.h5", "ann", "DELETE", keep_root=1) == 200
    assert (await rest.service.owners.record(FIRST))["secondNames"] == {THIRD: "ann"}
    assert await status(rest, FIRST, "ann", "DELETE", keep_root=1) == 200
    assert await status(rest, THIRD, "ann") == 200


async def test_notes_of_names_that_are_not_there_make_way(
    rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_changes, "MAX_SECOND_NAMES", 2)
    owners = rest.service.owners
    await owners.apply(AddSecondName(FIRST, "/home/ann/cut short.h5", "ann"))
    await name(rest, THIRD, FIRST, "ann")
    assert (await owners.record(FIRST))["secondNames"] == {SECOND: "bob", THIRD: "ann"}


async def test_a_name_given_while_another_one_at_its_path_is_deleted_stays_noted(rest: RestClient) -> None:
    owners = rest.service.owners
    domain = await find_domain(rest.service, SECOND)
    await forget_second_name(owners, domain)  # it is there again before the note of the first one goes
    assert (await owners.record(FIRST))["secondNames"] == {SECOND: "bob"}
