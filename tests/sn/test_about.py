"""What the server says of itself."""

from __future__ import annotations

from pathlib import Path

from hsparse import __version__
from hsparse.clock import SystemClock
from hsparse.errors import Misconfigured
from hsparse.sn.auth.authenticator import SchemeAuthenticator
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.password_file import PasswordFile
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from tests.sn.conftest import USERS
from tests.support.rest_client import RestClient


async def test_about_needs_no_user(bare: RestClient) -> None:
    about = await bare("GET", "/about", user=None)
    assert about.status == 200
    assert about["hsds_version"].startswith("1.")
    assert about["hsparse_version"] == __version__
    assert (about["state"], about["node_count"], about["dn_ids"]) == ("READY", 1, ["dn-001"])
    assert (about["username"], about["isadmin"]) == ("anonymous", False)
    assert (await bare("GET", "/about", user="admin"))["isadmin"] is True


async def test_only_an_admin_sees_the_users(bare: RestClient) -> None:
    users = (await bare("GET", "/users", user="admin"))["users"]
    assert users == [
        {"userName": user.name, "admin": user.admin, "groups": sorted(user.groups)} for user in USERS
    ]
    for user in ("test_user1", None):
        assert (await bare("GET", "/users", user=user)).status in (401, 403)


async def test_info(bare: RestClient) -> None:
    info = await bare("GET", "/info")
    assert {key: info["node"][key] for key in ("type", "state", "node_count")} == {
        "type": "sn",
        "state": "READY",
        "node_count": 1,
    }
    assert info["data_nodes"][0]["id"] == "dn-001"


async def test_a_node_whose_password_file_cannot_be_used_is_not_ready(
    bare: RestClient, tmp_path: Path
) -> None:
    passwords = PasswordAuthenticator(PasswordFile(tmp_path / "passwords"), SystemClock())
    (tmp_path / "passwords").write_text("ada\n")
    bare.service.authenticator = SchemeAuthenticator(passwords=passwords)
    reply = await bare("GET", "/readyz", user=None)
    assert reply.status == 503
    assert reply["error"]["message"] == "The server's password file cannot be used; its log says why."


async def test_a_node_that_may_not_use_the_data_nodes_is_not_ready(bare: RestClient) -> None:
    assert (await bare("GET", "/readyz", user=None)).body == {"state": "READY"}
    bare.service.owners = Owners(FixedNodes({}, lambda: Misconfigured("Another token.")))
    reply = await bare("GET", "/readyz", user=None)
    assert (reply.status, reply["error"]["message"]) == (503, "Another token.")
    assert (await bare("GET", "/about", user=None))["state"] == "WAITING"
    assert (await bare("GET", "/livez", user=None)).status == 200
