"""Domains of requests and their spellings, home folders, and rights to files of the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from hsparse.errors import BadRequest, Forbidden, StoreFailed, TooLarge
from hsparse.model.acl import ANONYMOUS, Principal, Right, full_rights
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.policies.access import MAX_FOLDERS, UserFileRights, request_place
from hsparse.sn.request import Request
from hsparse.wire.message import DataNode, Failure
from hsparse.wire.record_message import CreateObject, Outcome, ReadObjects
from tests.sn.conftest import DOMAIN
from tests.sn.dataset_kinds import I8, U8
from tests.sn.domains.test_domains import mark
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import NamedUser, Reply, RestClient, answered, refuses
from tests.testing.manual_clock import ManualClock

NONE = dict.fromkeys(full_rights(), False)


async def test_a_folder_has_no_objects(rest: RestClient, root: str) -> None:
    assert (await rest("GET", f"/groups/{root}", domain="/home/test_user1")).status == 400
    assert (await rest("GET", "/groups", domain="/home/test_user1"))["groups"] == []
    assert (await rest("POST", "/groups", {}, domain="/home/test_user1")).status == 400
    assert (await rest("GET", "/", domain="/home/test_user1", h5path="/x")).status == 400


async def test_home_is_there_in_a_new_store(bare: RestClient) -> None:
    home = await bare("GET", "/", domain="/home")
    assert (home.status, home["class"], home["owner"]) == (200, "folder", "admin")
    own = await bare("GET", "/", domain="/home/test_user1")
    assert (own.status, own["owner"]) == (200, "test_user1")
    listed = await bare("GET", "/domains", domain="/home/")
    assert [one["name"] for one in listed["domains"]] == ["/home/test_user1"]


async def test_a_user_called_admin_has_no_rights_in_home(node: DataNode) -> None:
    users = Principal("admin"), Principal("root", admin=True)
    client = await RestClient(node, ManualClock(), *users).open()
    home = "/home"
    assert (await client("GET", "/", domain=home)).status == 200
    assert (await client("PUT", "/", {"folder": 1}, domain="/home/ada/", user="admin")).status == 403
    assert (await client("PUT", "/acls/admin", {"update": True}, domain=home, user="admin")).status == 403
    assert (await client("PUT", "/", {"folder": 1}, domain="/home/admin/mine/", user="admin")).status == 201
    assert (await client("PUT", "/acls/admin", {"read": True}, domain=home, user="root")).status == 201
    await client.close()


async def test_only_ones_own_home_is_made(bare: RestClient) -> None:
    assert (await bare("GET", "/", domain="/home/test_user2")).status == 404
    assert (await bare("GET", "/", domain="/home/nobody", user="admin")).status == 404
    assert (await bare("GET", "/", domain="/home/anonymous", user=None)).status == 404


async def test_many_ask_at_once(bare: RestClient) -> None:
    replies = await asyncio.gather(
        *(bare("PUT", "/", {}, domain=f"/home/test_user1/{n}.h5") for n in range(8)),
        *(bare("GET", "/", domain="/home/test_user2", user="test_user2") for _ in range(4)),
    )
    assert {reply.status for reply in replies} == {200, 201}


ALICE, BOB, ADMIN = Principal("alice"), Principal("bob"), Principal("admin", admin=True)


def owners(node: DataNode) -> Owners:
    return Owners(FixedNodes({"dn-001": node}))


@pytest.fixture
async def found() -> Owners:
    found = owners(MemoryNode())
    for path, acls in {
        "/home": {"default": {"read": True}},
        "/home/alice": {"alice": {"read": True}},
        "/home/alice/open": {"default": {"read": True}},
        "/home/alice/file.h5": {"bob": {"read": True}},
    }.items():
        record: dict[str, Any] = {"owner": "alice", "acls": acls, "created": 0, "lastModified": 0}
        await found.apply(CreateObject(path, record))
    return found


@pytest.mark.parametrize(
    ("uri", "who"),
    [
        ("top.h5", {ALICE, BOB, ADMIN, ANONYMOUS}),
        ("data/deep/a.h5", {ALICE, BOB, ADMIN, ANONYMOUS}),
        ("home/a.h5", {ALICE, BOB, ADMIN, ANONYMOUS}),
        ("home/carol/a.h5", {ALICE, BOB, ADMIN, ANONYMOUS}),
        ("home/alice/a.h5", {ALICE, ADMIN}),
        ("s3://bucket/home/alice/a.h5", {ALICE, ADMIN}),
        ("home/alice/deep/er/a.h5", {ALICE, ADMIN}),
        ("home/alice/open/a.h5", {ALICE, BOB, ADMIN, ANONYMOUS}),
        ("home/alice/open/deep/a.h5", {ALICE, BOB, ADMIN, ANONYMOUS}),
        ("home/alice/file.h5/inside.h5", {BOB, ADMIN}),
    ],
)
async def test_the_nearest_folder_decides(found: Owners, uri: str, who: set[Principal]) -> None:
    for principal in (ALICE, BOB, ADMIN, ANONYMOUS):
        rights = UserFileRights(found, principal, "bucket")
        if principal in who:
            await rights.require(uri, "top.h5")
        else:
            with pytest.raises(Forbidden, match=principal.name):
                await rights.require("top.h5", uri)


async def test_what_names_no_file(found: Owners) -> None:
    with pytest.raises(BadRequest):
        await UserFileRights(found, ADMIN, "bucket").require("../a.h5")
    with pytest.raises(Forbidden, match="'other'"):
        await UserFileRights(found, ADMIN, "bucket").require("s3://other/a.h5")


async def test_files_in_too_many_folders(found: Owners) -> None:
    with pytest.raises(TooLarge, match=str(MAX_FOLDERS)):
        await UserFileRights(found, ADMIN, "bucket").require(*(f"{i}/a.h5" for i in range(MAX_FOLDERS + 1)))


class Failing(MemoryNode):
    """Cannot read records."""

    async def send(self, message: Any) -> Any:
        assert isinstance(message, ReadObjects)
        return tuple(Outcome(failure=Failure.of(StoreFailed("The store is gone."))) for _ in message.ids)


async def test_a_folder_that_cannot_be_read_is_not_taken_for_none() -> None:
    with pytest.raises(StoreFailed):
        await UserFileRights(owners(Failing()), BOB, "bucket").require("home/alice/a.h5")


PRIVATE = "/home/test_user1/private"
READ_BY_NAME: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("PUT", "/", {"flush": 1}),
    ("DELETE", "/", None),
    ("GET", "/acls", None),
    ("GET", "/domains", None),
    ("GET", "/datasets", None),
    ("POST", "/groups", {}),
    ("GET", "/files{}", None),
    ("PUT", "/?domain={}/more", {}),
    ("PUT", "/?domain=/home/test_user2/link.h5", {"linked_domain": "{}"}),
]


@pytest.fixture
async def private(rest: RestClient, node: DataNode) -> RestClient:
    """The client with a folder that its user alone may read, a domain in it, and one that was."""
    closed = {right.value: False for right in Right}
    assert (await rest("PUT", "/", {"folder": 1}, domain=PRIVATE)).status == 201
    for path in (f"{PRIVATE}/a.h5", f"{PRIVATE}/gone.h5"):
        assert (await rest("PUT", "/", {}, domain=path)).status == 201
        assert (await rest("PUT", "/acls/default", closed, domain=path)).status == 201
    assert (await rest("PUT", "/acls/default", closed, domain=PRIVATE)).status == 201
    await mark(node, f"{PRIVATE}/gone.h5")
    return rest


@pytest.mark.parametrize(("method", "path", "body"), READ_BY_NAME, ids=str)
async def test_names_in_a_private_folder_are_not_told(
    private: RestClient, method: str, path: str, body: Any
) -> None:
    answers = []
    for name in ("a.h5", "gone.h5", "missing.h5", "missing/deeper.h5"):
        domain = f"{PRIVATE}/{name}"
        sent = None if body is None else {key: str(value).format(domain) for key, value in body.items()}
        named = None if "domain=" in path or "{}" in path else domain
        reply = await private(method, path.format(domain), sent, user="test_user2", domain=named)
        answers.append((reply.status, reply["error"]["kind"], reply["error"]["message"].replace(domain, "")))
    assert {status for status, _, _ in answers} == {403}
    assert len(set(answers)) == 1, answers


async def test_who_may_read_a_folder_learns_what_is_missing(private: RestClient) -> None:
    assert (await private("GET", "/", domain=f"{PRIVATE}/a.h5")).status == 200
    assert (await private("GET", "/", domain=f"{PRIVATE}/gone.h5")).status == 410
    assert (await private("GET", "/", domain=f"{PRIVATE}/missing.h5")).status == 404
    assert (await private("PUT", "/acls/default", {"read": True}, domain=f"{PRIVATE}/a.h5")).status == 201
    assert (await private("GET", "/", domain=f"{PRIVATE}/a.h5", user="test_user2")).status == 200
    assert (await private("GET", f"/files{PRIVATE}/a.h5.h5", domain=None, user="test_user2")).status == 200


class SlowRequest:
    """A request whose body comes in two pieces; in between, once its right was checked, something else may happen."""

    def __init__(self, rest: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rest = rest
        self._waits, self._goes_on = asyncio.Event(), asyncio.Event()
        received = Request._received

        async def wait(request: Request, part: int | None) -> bytearray:
            self._waits.set()
            return await received(request, part)

        monkeypatch.setattr(Request, "_received", wait)

    async def begin(self, method: str, path: str, body: bytes, **options: Any) -> None:
        """Send all but the last byte, and wait until the server waits for it."""

        async def pieces() -> AsyncIterator[bytes]:
            yield body[:-1]
            await self._goes_on.wait()
            yield body[-1:]

        self._reply = asyncio.ensure_future(self._rest(method, path, pieces(), **options))
        await self._waits.wait()

    async def end(self) -> Reply:
        self._goes_on.set()
        return await self._reply


@pytest.fixture
def slow(rest: RestClient, monkeypatch: pytest.MonkeyPatch) -> SlowRequest:
    return SlowRequest(rest, monkeypatch)


async def test_a_body_that_comes_late_is_written_if_the_right_is_still_there(
    rest: RestClient, root: str, slow: SlowRequest
) -> None:
    attribute = json.dumps({"type": I8, "value": 1}).encode()
    await slow.begin("PUT", f"/groups/{root}/attributes/a", attribute)
    assert (await slow.end()).status == 201


@pytest.mark.parametrize("kind", ["acl", "values", "attribute", "group"])
async def test_a_right_that_is_taken_away_before_the_body_has_come(
    rest: RestClient, root: str, slow: SlowRequest, kind: str
) -> None:
    body = {"type": U8, "shape": [4], "link": {"id": root, "name": "d"}}
    dataset = (await rest("POST", "/datasets", body))["id"]
    attribute = json.dumps({"type": I8, "value": 1}).encode()
    method, path, sent = {
        "acl": ("PUT", "/acls/test_user2", json.dumps(full_rights()).encode()),
        "values": ("PUT", f"/datasets/{dataset}/value", b"evil"),
        "attribute": ("PUT", f"/groups/{root}/attributes/a", attribute),
        "group": ("POST", "/groups", b"{}"),
    }[kind]
    assert (await rest("PUT", "/acls/test_user2", full_rights())).status == 201
    await slow.begin(method, path, sent, user="test_user2")
    assert (await rest("PUT", "/acls/test_user2", NONE)).status == 201
    assert (await slow.end()).status == 403
    assert (await rest("GET", "/acls/test_user2"))["acl"].items() >= NONE.items()
    assert (await rest("GET", f"/groups/{root}/attributes"))["attributes"] == []
    assert (await rest("GET", "/groups"))["groups"] == []


@pytest.mark.parametrize("right", [Right.UPDATE, Right.READ, Right.DELETE])
async def test_a_second_right_that_is_taken_away_before_the_body_has_come(
    rest: RestClient, root: str, slow: SlowRequest, right: Right
) -> None:
    """A replacement needs the right to update or delete beside that to create, a change by a query that to read."""
    body = {"type": U8, "shape": [4], "link": {"id": root, "name": "d"}}
    dataset = f"/datasets/{(await rest('POST', '/datasets', body))['id']}"
    attribute = {"type": I8, "value": 1}
    assert (await rest("PUT", f"{dataset}/attributes/a", attribute)).status == 201
    assert (await rest("PUT", "/acls/test_user2", full_rights())).status == 201
    changed, options = json.dumps(attribute | {"value": 2}).encode(), {"user": "test_user2"}
    if right is Right.UPDATE:
        await slow.begin(
            "PUT", f"{dataset}/attributes", b'{"attributes": {"a": %s}}' % changed, **options, replace=1
        )
    elif right is Right.DELETE:
        swap = b'{"links": {"d": {"h5path": "/x"}}, "remove": ["d"]}'
        await slow.begin("PUT", f"/groups/{root}/links", swap, **options)
    else:
        headers = {"Content-Type": "application/json"}
        await slow.begin(
            "PUT", f"{dataset}/value", b'{"value": 9}', **options, query="_ == 0", headers=headers
        )
    assert (await rest("PUT", "/acls/test_user2", {right.value: False})).status == 201
    assert (await slow.end()).status == 403
    assert (await rest("GET", f"{dataset}/attributes/a"))["value"] == 1
    assert (await rest("GET", f"/groups/{root}/links/d"))["link"]["class"] == "H5L_TYPE_HARD"


LATE: list[tuple[str, str, bytes]] = [
    ("PUT", "/groups/{root}/attributes/a", b'{"type": "H5T_STD_I8LE", "value": 1}'),
    ("POST", "/", b'{"h5paths": ["/"]}'),
    ("PUT", "/", b'{"flush": 1}'),
    ("PUT", "/?domain=/home/test_user1/new.h5", b"{}"),
    ("DELETE", "/", b"{}"),
    ("POST", "/jobs", b'{"kind": "export", "domain": "/home/test_user1/file.h5", "target": "file:///x.h5"}'),
]
"""Requests with bodies: their method, path and body; but for the first, their routes have no right."""


@pytest.mark.parametrize(("method", "path", "body"), LATE, ids=str)
async def test_a_credential_that_is_worth_nothing_any_more_when_the_body_has_come(
    rest: RestClient, root: str, slow: SlowRequest, method: str, path: str, body: bytes
) -> None:
    valid, new = rest.service.authenticator, "/home/test_user1/new.h5"
    await slow.begin(method, path.format(root=root), body, domain=None if "domain=" in path else DOMAIN)
    rest.service.authenticator = NamedUser()
    assert (await slow.end()).status == 401
    rest.service.authenticator = valid
    assert (await rest("GET", "/")).status == 200
    assert (await rest("GET", "/", domain=new)).status == 404


@pytest.mark.parametrize(
    ("user", "now"),
    [("admin", Principal("admin")), ("test_user2", Principal("test_user2", groups=frozenset({"others"})))],
    ids=["role", "group"],
)
async def test_a_role_or_group_that_is_taken_away_before_the_body_has_come(
    rest: RestClient, slow: SlowRequest, user: str, now: Principal
) -> None:
    folder = {"domain": "/home/test_user1"}
    assert (await rest("PUT", "/acls/g:test_group", {"read": True, "delete": True})).status == 201
    request = ("PUT", "/quota", b'{"bytes": 1}') if now.name == "admin" else ("DELETE", "/", b"{}")
    await slow.begin(*request, user=user, **(folder if now.name == "admin" else {}))
    valid, rest.service.authenticator = rest.service.authenticator, NamedUser(now)
    reply = await slow.end()
    assert (reply.status, "send the request again" in str(reply.body)) == (403, True)
    rest.service.authenticator = valid
    assert (await rest("GET", "/quota", **folder))["bytes"] is None
    assert (await rest("GET", "/")).status == 200


@pytest.mark.parametrize("mine", [False, True])
async def test_a_domain_that_another_one_created_before_the_body_has_come(
    rest: RestClient, slow: SlowRequest, mine: bool
) -> None:
    folder, path = "/home/test_user1/common", "/home/test_user1/common/x.h5"
    assert (await rest("PUT", "/", {"folder": 1}, domain=folder)).status == 201
    await answered(rest("PUT", "/acls/test_user2", {"create": True, "read": True}, domain=folder), 201)
    first = {"domain": path, "user": "test_user2"}
    assert (await rest("PUT", "/", {}, **first)).status == 201
    await slow.begin("PUT", "/acls/test_user2", json.dumps(full_rights()).encode(), **first)
    assert (await rest("DELETE", "/", **first)).status == 200
    then = first if mine else {"domain": path}
    assert (await rest("PUT", "/", {}, **then)).status == 201
    before = (await rest("GET", "/acls", **then))["acls"]
    assert (await slow.end()).status == (409 if mine else 403)
    assert (await rest("GET", "/acls", **then))["acls"] == before


async def test_a_body_that_came_at_once_costs_no_second_look(rest: RestClient, root: str) -> None:
    attribute = {"type": I8, "value": 1}
    reads: list[tuple[str, ...]] = []
    read = rest.service.owners.read

    async def counted(*ids: str) -> list[Outcome]:
        reads.append(ids)
        return await read(*ids)

    rest.service.owners.read = counted  # type: ignore[method-assign]
    assert (await rest("PUT", f"/groups/{root}/attributes/a", attribute)).status == 201
    assert reads.count((DOMAIN,)) == 1


@pytest.mark.parametrize(
    "spelled", [DOMAIN, DOMAIN + "/", "hdf5:/" + DOMAIN, "hdf5://" + DOMAIN[1:], "hsparse" + DOMAIN]
)
async def test_one_domain_has_many_spellings(rest: RestClient, root: str, spelled: str) -> None:
    assert (await rest("GET", "/", domain=spelled))["root"] == root
    assert (await rest("GET", f"/groups/{root}", domain=spelled)).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/home/../x",
        "/home/./x",
        "/home//x",
        "/home/a\nb",
        "/home/" + "x" * 300,
        "/home" + "/x" * 600,
        "/db/x",
        "/db",
        "file.h5",
        "/home/.domain.json",
        "/home/c1\x85",
        "/home/fdp\u202e.5h",
        "/home/isolated\u2066",
        "/home/line\u2028",
        "/home/paragraph\u2029",
        "/home/zero\u200bwidth",
    ],
)
async def test_a_bad_path_is_a_bad_request(rest: RestClient, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        reply = await rest(method, "/", {} if method == "PUT" else None, domain=path, user="admin")
        assert reply.status == 400
        assert reply["error"]["message"].endswith(".")


@pytest.mark.parametrize("path", ["/DB", "/dB/x", "/home/.DOMAIN.json", "/home/.domain.j\u017fon/x"])
async def test_a_path_that_some_file_systems_take_for_the_stores_is_not_created(
    rest: RestClient, path: str
) -> None:
    await refuses(rest("PUT", "/", {"folder": 1}, domain=path, user="admin"), 400, "in another case")
    assert (await rest("GET", "/", domain=path, user="admin")).status == 404


async def test_a_folder_that_has_such_a_path_already_is_read_and_deleted(rest: RestClient) -> None:
    await rest.service.owners.apply(CreateObject("/DB", {"owner": "admin", "acls": {}}))
    assert (await rest("GET", "/", domain="/DB", user="admin")).status == 200
    assert (await rest("PUT", "/", {}, domain="/DB/new.h5", user="admin")).status == 400
    assert (await rest("DELETE", "/", domain="/DB", user="admin")).status == 200


async def test_host_is_not_a_domain(rest: RestClient) -> None:
    assert (await rest("GET", "/", host=DOMAIN)).status == 400


async def test_only_our_bucket(rest: RestClient) -> None:
    assert (await rest("GET", "/", bucket="hsparse")).status == 200
    assert (await rest("GET", "/", bucket="other")).status == 404
    assert (await rest("GET", "/", headers={"X-Hdf-bucket": "other"})).status == 404
    assert (await rest("GET", "/", domain="other" + DOMAIN)).status == 404


@pytest.mark.parametrize(("path", "host"), [("/home/\udcff", "localhost"), ("/home", "\udcff")])
async def test_headers_that_are_not_utf8(rest: RestClient, path: str, host: str) -> None:
    """As aiohttp gives such bytes to a handler; its own client would not send them."""
    request: Any = SimpleNamespace(query={}, headers={"X-Hdf-domain": path}, host=host)
    with pytest.raises(BadRequest, match="UTF-8"):
        request_place(rest.service, request)
