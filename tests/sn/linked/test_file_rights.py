"""Who may have files read: the nearest folder above a file decides."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.clock import ManualClock
from hsparse.cluster.membership import Membership
from hsparse.errors import BadRequest, Forbidden, StoreFailed, TooLarge
from hsparse.model.principal import ANONYMOUS, Principal
from hsparse.sn.linked.file_rights import MOST_FOLDERS, FileRights
from hsparse.sn.owners import Owners
from hsparse.testing.dict_data_node import DictDataNode
from hsparse.wire.message import DataNode, Failure
from hsparse.wire.record_message import CreateObject, Outcome, ReadObjects

ALICE, BOB, ADMIN = Principal("alice"), Principal("bob"), Principal("admin", admin=True)


def owners(node: DataNode) -> Owners:
    return Owners(Membership(1, ("dn-001",)), {"dn-001": node})


@pytest.fixture
async def found() -> Owners:
    found = owners(DictDataNode(ManualClock()))
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
        rights = FileRights(found, principal, "bucket")
        if principal in who:
            await rights.require(uri, "top.h5")
        else:
            with pytest.raises(Forbidden, match=principal.name):
                await rights.require("top.h5", uri)


async def test_what_names_no_file(found: Owners) -> None:
    with pytest.raises(BadRequest):
        await FileRights(found, ADMIN, "bucket").require("s3://other/a.h5")


async def test_files_in_too_many_folders(found: Owners) -> None:
    with pytest.raises(TooLarge, match=str(MOST_FOLDERS)):
        await FileRights(found, ADMIN, "bucket").require(*(f"{i}/a.h5" for i in range(MOST_FOLDERS + 1)))


class Failing(DictDataNode):
    """Cannot read records."""

    async def send(self, message: Any) -> Any:
        assert isinstance(message, ReadObjects)
        return tuple(Outcome(failure=Failure.of(StoreFailed("The store is gone."))) for _ in message.ids)


async def test_a_folder_that_cannot_be_read_is_not_taken_for_none() -> None:
    with pytest.raises(StoreFailed):
        await FileRights(owners(Failing(ManualClock())), BOB, "bucket").require("home/alice/a.h5")
