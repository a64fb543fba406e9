"""h5pyd's tools, and how it signs in."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5pyd
import numpy as np
import pytest
import requests

from tests.clients.h5pyd_tool import run_tool
from tests.support.server_process import ServerProcess, server_process
from tests.support.token_issuer import TokenIssuer, serving_in_thread

HOME = "/home/admin"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def endpoint(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def tool(endpoint: str) -> Tool:
    """Run a tool and return what it printed; `status` is what it must end with."""

    def run(name: str, *arguments: str, status: int = 0) -> str:
        done = run_tool(endpoint, name, *arguments)
        assert done.returncode == status, f"{name} printed {done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if status else "")

    return run


@pytest.fixture
def made(endpoint: str, request: pytest.FixtureRequest) -> str:
    """The path of a file with objects of all kinds, links and attributes, in a folder of the test's name."""
    folder = f"{HOME}/{request.node.originalname}"
    options = {"endpoint": endpoint, "username": "admin", "password": "any"}
    h5pyd.Folder(folder + "/", mode="w", **options)
    with h5pyd.File(f"{folder}/a.h5", "w", **options) as file:
        file.attrs["title"] = "hällo"
        group = file.create_group("g")
        data = np.arange(24).reshape(4, 6)
        dataset = group.create_dataset("d", data=data, chunks=(2, 3), compression="gzip")
        dataset.attrs["units"] = "mm"
        file.create_dataset("one", data=3.25)
        file["kind"] = np.dtype([("n", "<i4"), ("v", "<f8")])
        file["hard"] = dataset
        file["soft"] = h5pyd.SoftLink("/g/d")
        file["away"] = h5pyd.ExternalLink("/home/admin/other.h5", "/x")
    return f"{folder}/a.h5"


def listed(tool: Tool, *arguments: str) -> list[str]:
    return [line.split()[-1] for line in tool("hsls", *arguments).splitlines()[:-1]]


def test_hsinfo(tool: Tool, endpoint: str) -> None:
    told = dict(line.split(": ", 1) for line in tool("hsinfo").splitlines())
    assert (told["server state"], told["endpoint"]) == ("READY", endpoint)
    assert told["username"] == "admin (admin)"
    assert told["server version"].startswith("1.")


def test_hstouch_hsls_and_hsdel(tool: Tool) -> None:
    folder = f"{HOME}/touched"
    tool("hstouch", f"{folder}/")
    tool("hstouch", f"{folder}/a.h5")
    tool("hstouch", f"{folder}/a.h5")
    tool("hstouch", f"{folder}/inner/")
    assert listed(tool, f"{folder}/") == [f"{folder}/", f"{folder}/a.h5", f"{folder}/inner/"]
    assert "sub-items" in tool("hsdel", f"{folder}/", status=1)
    tool("hsdel", f"{folder}/nope.h5", status=1)
    for path in ("a.h5", "inner/", ""):
        tool("hsdel", f"{folder}/{path}")
    assert folder not in tool("hsls", f"{HOME}/")


def test_hsls_of_a_file(tool: Tool, made: str) -> None:
    lines = tool("hsls", "-r", made).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "/away ExternalLink {/x///home/admin/other.h5}",
        "/g Group",
        "/g/d Dataset {4, 6}",
        "/hard Dataset, same as /g/d",
        "/kind Datatype",
        "/one Dataset {{SCALAR}}",
        "/soft SoftLink {/g/d}",
    ]
    verbose = tool("hsls", "-r", "-v", "--showattrs", made)
    for part in ("hällo", "units", "gzip", "Chunks: [2, 3]"):
        assert part in verbose


def test_hsstat(tool: Tool, made: str) -> None:
    told = dict(line.strip().split(":", 1) for line in tool("hsstat", made).splitlines())
    assert (told["owner"].strip(), int(told["num objects"]), int(told["num chunks"])) == ("admin", 5, 2)
    assert int(told["total_size"]) == int(told["allocated_bytes"]) + int(told["metadata_bytes"])


def test_hsacl(tool: Tool, made: str) -> None:
    tool("hsacl", made, "+r", "default")
    tool("hsacl", made, "+crud", "anna")
    tool("hsacl", made, "-d", "anna")
    rows = [line.split() for line in tool("hsacl", made).splitlines()[2:]]
    assert rows == [
        ["admin", *["True"] * 6],
        ["anna", "True", "True", "True", "False", "False", "False"],
        ["default", "False", "True", *["False"] * 4],
    ]
    assert tool("hsacl", made, "anna").splitlines()[2].split() == rows[1]


def test_hscopy(tool: Tool, made: str, endpoint: str) -> None:
    copy = made.replace("a.h5", "copy.h5")
    tool("hscopy", made, copy)
    without_ids = [
        re.sub(r"UUID: \S+", "", tool("hsls", "-r", "-v", "--showattrs", path)) for path in (made, copy)
    ]
    assert without_ids[0] == without_ids[1]
    options = {"endpoint": endpoint, "username": "admin", "password": "any"}
    with h5pyd.File(copy, "r", **options) as file:
        np.testing.assert_array_equal(file["soft"][...], np.arange(24).reshape(4, 6))
        assert file["hard"] == file["g/d"]
    tool("hsdel", made)
    with h5pyd.File(copy, "r", **options) as file:
        np.testing.assert_array_equal(file["g/d"][1:3], np.arange(24).reshape(4, 6)[1:3])


def test_a_domain_moved_as_hsmv_moves_it(tool: Tool, made: str, endpoint: str) -> None:
    """hsmv of h5pyd 0.24 sends this; that of 1.0.0 leaves `linked_domain` out, and moves nothing, on HSDS too."""
    moved = made.replace("a.h5", "moved.h5")
    before = tool("hsls", "-r", "-v", made)
    options = {"timeout": 60, "auth": ("admin", "any")}
    reply = requests.put(f"{endpoint}/", params={"domain": moved}, json={"linked_domain": made}, **options)
    assert reply.status_code == 201
    reply = requests.delete(f"{endpoint}/", params={"domain": made, "keep_root": 1}, **options)
    assert (reply.status_code, tool("hsls", "-r", "-v", moved)) == (200, before)
    assert "has been removed" in tool("hsls", made)


COMMAND = [sys.executable, "-m", "hsparse.cli.main"]
PASSWORD = "correct horse battery staple"
WIRES = "wires-of-the-robot"


@dataclass(frozen=True, slots=True)
class Site:
    """A server that knows ann by password, key and token, bob by token, and two programs by key."""

    server: ServerProcess
    issuer: TokenIssuer
    folder: Path
    log: Path

    def open(self, path: str, mode: str, **credentials: Any) -> Any:
        return h5pyd.File(path, mode, endpoint=self.server.url, retries=1, **credentials)

    def key(self, *words: str) -> str:
        """Run `hsparse key`; return what it prints."""
        return command(self.folder, "key", *words, "--key-file", "keys")

    def ask(self, method: str, path: str, authorization: str | None, body: Any = None) -> tuple[int, Any]:
        """Send a request as no client would; return the status and the JSON."""
        headers = {"Content-Type": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.status, json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


def command(folder: Path, *words: str) -> str:
    """Run `hsparse` in a folder, with a password to type; return what it prints."""
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, input=f"{PASSWORD}\n", capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    issuer = TokenIssuer(users={"ann": PASSWORD, "bob": PASSWORD, "robot": WIRES}, groups={"bob": ["beam"]})
    (folder / "groups").write_text("operators: robot\n")
    (folder / "keys").write_text("")
    command(folder, "user", "add", "ann", "--password-file", "passwords")
    with (
        serving_in_thread(issuer),
        server_process(
            *("--root", str(folder / "data"), "--no-fsync", "--log-level", "DEBUG"),
            *("--password-file", str(folder / "passwords"), "--key-file", str(folder / "keys")),
            *("--group-file", str(folder / "groups"), "--admins", "g:operators"),
            *("--oidc-issuer", issuer.url, "--oidc-audience", "hsparse"),
            *("--oidc-user-claim", "preferred_username", "--oidc-group-claim", "realm_access.roles"),
            log=folder / "log",
        ) as server,
    ):
        yield Site(server, issuer, folder, folder / "log")
        assert server.stop() == 0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give h5pyd an empty home: it keeps tokens there."""
    monkeypatch.setenv("HOME", str(tmp_path))


def use(site: Site, path: str, **credentials: Any) -> None:
    """Write and read a file as one who may."""
    with site.open(path, "w", **credentials) as file:
        file.create_dataset("x", data=[1, 2, 3])
    with site.open(path, "r", **credentials) as file:
        assert (file["x"][...].tolist(), file.owner) == ([1, 2, 3], path.split("/")[2])


def test_an_api_key_signs_in(site: Site) -> None:
    key = site.key("add", "laptop", "--of", "ann", "--service")
    use(site, "/home/ann/key.h5", api_key=key)
    use(site, "/home/ann/basic.h5", username="ann", password=key)
    use(site, "/home/ann/password.h5", username="ann", password=PASSWORD)
    with pytest.raises(OSError, match=r"401|Unauthorized|not known"):
        site.open("/home/ann/key.h5", "r", username="bob", password=key)


def test_a_revoked_key_is_refused_without_a_restart(site: Site) -> None:
    key = site.key("add", "short", "--of", "ann", "--service")
    file = site.open("/home/ann/short.h5", "w", api_key=key)
    file.create_group("g")
    file.flush()
    site.key("revoke", "short")
    file.create_group("h")  # h5pyd keeps it to itself until the next flush
    with pytest.raises(OSError, match="401"):
        file.close()
    status, body = site.ask("GET", "/about", f"Bearer {key}")
    assert status == 401
    assert "if the key was revoked" in body["error"]["message"]


def test_an_expired_key_is_refused(site: Site) -> None:
    key = site.key("add", "old", "--of", "ann", "--service", "--days", "1")
    assert site.ask("GET", "/about", f"Bearer {key}")[0] == 200
    path = site.folder / "keys"
    lines = path.read_text().splitlines()
    (place,) = [n for n, line in enumerate(lines) if line.endswith(":old")]
    fields = lines[place].split(":")
    fields[6] = "20200101T000000Z"
    lines[place] = ":".join(fields)
    path.write_text("\n".join(lines) + "\n")
    status, body = site.ask("GET", "/about", f"Bearer {key}")
    assert status == 401
    assert "The API key old expired at 20200101T000000Z" in body["error"]["message"]


def token(site: Site, **form: str) -> str:
    """Return an access token by one of the issuer's grants."""
    data = "&".join(f"{key}={value.replace(' ', '+')}" for key, value in form.items()).encode()
    with urllib.request.urlopen(f"{site.issuer.url}/token", data, timeout=20) as reply:
        return str(json.loads(reply.read())["access_token"])


def test_a_bearer_token_signs_in(site: Site) -> None:
    use(
        site,
        "/home/ann/token.h5",
        api_key=token(site, grant_type="password", username="ann", password=PASSWORD),
    )
    robot = token(site, grant_type="client_credentials", client_id="robot", client_secret=WIRES)
    use(site, "/home/robot/token.h5", api_key=robot)
    assert site.ask("GET", "/about", f"Bearer {robot}")[1]["isadmin"] is True, "of the group operators"


def test_h5pyd_gets_a_token_of_keycloak_by_itself(site: Site) -> None:
    keycloak = {
        "openid_provider": "keycloak",
        "keycloak_uri": site.issuer.url,
        "keycloak_realm": "lab",
        "keycloak_client_id": "h5pyd",
    }
    use(site, "/home/bob/keycloak.h5", api_key=keycloak, username="bob", password=PASSWORD)


def test_hsacl_grants_to_a_group(site: Site) -> None:
    key = site.key("add", "acl", "--of", "ann", "--service")
    path = "/home/ann/hsacl.h5"
    use(site, path, api_key=key)
    bob = "Bearer " + site.issuer.token("bob")
    assert site.ask("GET", f"/?domain={path}", bob)[0] == 403
    environment = {**os.environ, "HS_ENDPOINT": site.server.url, "HS_API_KEY": key}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hsacl")), path, "+r", "g:beam"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "g:beam" in done.stdout
    assert site.ask("GET", f"/?domain={path}", bob)[0] == 200


def test_rights_of_groups_of_a_token(site: Site) -> None:
    ann = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    bob = "Bearer " + site.issuer.token("bob")
    path = "/home/ann/shared.h5"
    with site.open(path, "w", username="ann", password=PASSWORD) as file:
        file.attrs["a"] = 1
    assert site.ask("GET", f"/?domain={path}", bob)[0] == 403
    assert site.ask("GET", f"/?domain={path}", None)[0] == 403, "without credentials"
    assert site.ask("PUT", f"/acls/g:beam?domain={path}", ann, {"read": True})[0] == 201
    with site.open(path, "r", api_key=site.issuer.token("bob")) as file:
        assert file.attrs["a"] == 1
    assert site.ask("PUT", f"/acls/x?domain={path}", bob, {"read": True})[0] == 403
    assert site.ask("GET", f"/?domain={path}", None)[0] == 403
    assert site.ask("PUT", f"/acls/default?domain={path}", ann, {"read": True})[0] == 201
    assert site.ask("GET", f"/?domain={path}", None)[0] == 200
    with site.open(path, "r") as file:
        assert file.attrs["a"] == 1
    assert site.ask("PUT", f"/acls/bob?domain={path}", ann, {"read": False})[0] == 201
    assert site.ask("GET", f"/?domain={path}", bob)[0] == 403, "bob's own entry denies"


HOSTILE = {
    "no token": "Bearer ",
    "nonsense": "Bearer a.b.c",
    "unsigned": "Bearer eyJhbGciOiJub25lIn0.e30.",
    "a key of nobody": "Bearer hsk_000000000000_" + "0" * 64,
    "a wrong password": "Basic " + base64.b64encode(b"ann:guess").decode(),
    "no base64": "Basic ***",
    "another scheme": "Negotiate abc",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_credentials_are_401_where_anybody_may_read(site: Site, name: str) -> None:
    status, body = site.ask("GET", "/about", HOSTILE[name])
    assert (status, body["error"]["kind"]) == (401, "unauthenticated")


def test_secrets_are_in_no_log_and_no_file(site: Site) -> None:
    key = site.key("add", "quiet", "--of", "ann", "--service")
    bearer = site.issuer.token("ann")
    guess = "a-guess-at-a-password"
    use(site, "/home/ann/quiet.h5", api_key=key)  # h5pyd puts the key into URLs too
    for authorization in (
        f"Bearer {bearer}",
        f"Bearer {bearer}x",
        f"Bearer {key[:-1]}x",
        "Basic " + base64.b64encode(f"ann:{guess}".encode()).decode(),
        f"Strange {guess}",
    ):
        site.ask("GET", f"/nothing-here?api_key={key}", authorization)
        site.ask("GET", f"/about?api_key={key}", authorization)
    secrets = [PASSWORD, WIRES, key.rpartition("_")[2], bearer.rpartition(".")[2], guess]
    logged = site.log.read_text()
    assert logged, "the log is written, at DEBUG"
    for secret in secrets:
        assert secret not in logged
        for path in site.folder.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path
