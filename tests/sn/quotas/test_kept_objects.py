"""Objects that are kept without one of their names: they stay in the quotas above it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hsparse.model.acl import Right
from hsparse.sn.domains import domain_deletion as kept_objects
from hsparse.sn.domains.domain_deletion import DomainDeletions
from hsparse.sn.request import Domain
from hsparse.wire.record_message import DeleteObject, ForgetFirstName
from tests.sn.quotas.conftest import Start
from tests.support.rest_client import Reply, RestClient

FIRST, SECOND, OTHERS = "/home/ann/a.h5", "/home/ann/b.h5", "/home/ben/b.h5"
ALL, NONE = ({right.value: given for right in Right} for given in (True, False))


async def named_twice(start: Start, second: str = SECOND, user: str = "ann") -> tuple[RestClient, str]:
    """Return a client, and the root of a domain to which the user has given a second name."""
    rest = await start(home_quota=100_000)
    assert (await rest("PUT", "/", {}, domain=FIRST)).status == 201
    assert (await rest("PUT", "/acls/ben", ALL, domain=FIRST)).status == 201
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
    assert (await rest("PUT", "/quota", {"bytes": 50_000}, domain=folder, user="admin")).status == 200
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
