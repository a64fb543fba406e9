"""The long-running commands, as processes: starting, stopping, what they refuse, and several over one bucket."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli.main import main
from hsparse.cli.node_process import limit_arenas
from hsparse.cluster.membership_object import KEY
from hsparse.storage.s3.s3_store import S3Store
from tests.support.azurite import PROGRAMS, azure_variables, make_container
from tests.support.google_storage import google_variables
from tests.support.s3_servers import make_bucket
from tests.support.server_process import children_of, ended_command, server_process, start_command

COMMAND = [sys.executable, "-m", "hsparse.cli.main"]


def ask(
    url: str, method: str = "GET", body: Any = None, user: str | None = None, kind: str = "application/json"
) -> tuple[int, Any]:
    headers = {"Content-Type": kind}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def store_numbers(url: str, domain: str) -> str:
    assert ask(f"{url}/?domain={domain}", "PUT", {})[0] == 201
    body = {"type": "H5T_STD_I32LE", "shape": [4]}
    status, made = ask(f"{url}/datasets?domain={domain}", "POST", body)
    assert status == 201
    path = f"/datasets/{made['id']}/value?domain={domain}"
    assert ask(url + path, "PUT", {"value": [1, 2, 3, 4]})[0] == 200
    return path


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("serve", ["--root", "--bucket", "--host", "--port", "--password-file"]),
        ("sn", ["--root", "--bucket", "--host", "--port", "--password-file"]),
        ("dn", ["--root", "--bucket", "--host", "--port"]),
    ],
)
def test_help_begins_with_the_flags_that_most_servers_need(
    command: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    group = capsys.readouterr().out.partition("What most servers need:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (--[a-z-]+)", group, re.MULTILINE) == flags


@pytest.mark.parametrize("flags", [(), ("--dn", "2")], ids=["embedded", "two data nodes"])
def test_the_command_as_it_is_typed(tmp_path: Path, flags: tuple[str, ...]) -> None:
    command = [*COMMAND, "serve", "--port", "0", "--root", str(tmp_path), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith(f"hsparse serves a new store at {tmp_path} on http://127.0.0.1:")
        assert said.endswith(" (Ctrl-C stops)\n")
        assert ask(said.split(" on ")[1].split()[0] + "/about")[1]["state"] == "READY"
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read(), process.wait(20)) == ("hsparse is stopping\n", 0)


@pytest.mark.parametrize("flags", [(), ("--dn", "2")], ids=["embedded", "two data nodes"])
def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with server_process("--root", str(tmp_path), *flags) as server:
        assert ask(server.url + "/about")[1]["state"] == "READY"
        path = store_numbers(server.url, "/home/admin/a.h5")
        assert server.stop() == 0
    with server_process("--root", str(tmp_path), *flags) as server:
        assert ask(server.url + path)[1]["value"] == [1, 2, 3, 4]
        server.kill()
    with server_process("--root", str(tmp_path)) as server:
        assert ask(server.url + path)[1]["value"] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((), ["serve", "--port", "0"]),
        (("--dn", "2"), ["serve", "--port", "0", "--dn", "2"]),
        ((), ["dn", "--port", "0"]),
        (("--dn", "2"), ["dn", "--port", "0"]),
    ],
)
def test_a_directory_has_one_server(tmp_path: Path, first: tuple[str, ...], second: list[str]) -> None:
    with server_process("--root", str(tmp_path), *first) as server:
        arguments = (*second, "--root", str(tmp_path))
        status, said = ended_command(*arguments, log=tmp_path / "log", HSPARSE_NODE_TOKEN="secret")
        assert status == 2
        for named in (str(tmp_path), f"process {server.pid} on", "hsparse serve", "--root"):
            assert named in said
        assert len(said.splitlines()) == 1
        path = store_numbers(server.url, "/home/admin/a.h5")
        assert (ask(server.url + path)[1]["value"], server.stop()) == ([1, 2, 3, 4], 0)


def test_a_data_node_must_say_how_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HSPARSE_NODE_TOKEN", "secret")
    assert main(["dn", "--root", str(tmp_path), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "--advertise" in capsys.readouterr().err


def test_a_data_node_with_another_token_is_refused(tmp_path: Path) -> None:
    arguments = ("dn", "--root", str(tmp_path), "--port", "0", "--lease", "0.25")
    node, lines = start_command(arguments, None, "", {"HSPARSE_NODE_TOKEN": "one"})
    with lines:
        try:
            assert " on http" in lines.readline()
            status, said = ended_command(*arguments, log=tmp_path / "log", HSPARSE_NODE_TOKEN="another")
        finally:
            node.kill()
            node.join()
    assert status == 2
    assert "HSPARSE_NODE_TOKEN" in said


def test_a_start_after_a_kill_does_not_wait_for_the_puts_of_the_dead(tmp_path: Path) -> None:
    with server_process("--root", str(tmp_path)) as server:
        path = store_numbers(server.url, "/home/admin/a.h5")
        (writer,) = children_of(server.pid)  # puts through the write-ahead log
        os.kill(writer, signal.SIGSTOP)
        try:
            server.kill()
            with server_process("--root", str(tmp_path)) as next_server:
                assert ask(next_server.url + path)[1]["value"] == [1, 2, 3, 4]
        finally:
            os.kill(writer, signal.SIGCONT)


def test_data_nodes_end_with_the_server_however_it_ends(tmp_path: Path) -> None:
    with server_process("--root", str(tmp_path), "--dn", "2") as server:
        nodes = server.data_nodes
        assert len(nodes) == 2
        watched = [os.pidfd_open(node) for node in nodes]
        server.kill()
        for descriptor in watched:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)  # readable once the process has ended
            assert poll.poll(20_000), "a data node outlived its server"
            os.close(descriptor)


def test_a_data_node_that_dies_is_started_again(tmp_path: Path) -> None:
    with server_process("--root", str(tmp_path), "--dn", "2") as server:
        path = store_numbers(server.url, "/home/admin/a.h5")
        for node in server.data_nodes:
            os.kill(node, signal.SIGKILL)
        for _ in range(50):
            status, reply = ask(server.url + path)
            if status == 200:
                break
        assert (reply["value"], server.stop()) == ([1, 2, 3, 4], 0)


def test_nodes_on_their_own(tmp_path: Path) -> None:
    """The store and the token are all that nodes are given."""
    environment = {**os.environ, "HSPARSE_NODE_TOKEN": "secret", "HSPARSE_ROOT": str(tmp_path)}
    processes, urls = [], []
    try:
        for command in ("sn", "dn", "dn"):
            process = subprocess.Popen(
                [*COMMAND, command, "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True
            )
            processes.append(process)
            assert process.stdout is not None
            urls.append(process.stdout.readline().rpartition(" on ")[2].split()[0])
        path = store_numbers(urls[0], "/home/admin/a.h5")
        assert ask(urls[0] + path)[1]["value"] == [1, 2, 3, 4]
        about = ask(urls[0] + "/about")[1]
        assert (about["node_count"], len(about["dn_ids"])) == (2, 2)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(20) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_a_server_that_was_told_to_stop_answers_while_others_learn_of_it(tmp_path: Path) -> None:
    arguments = ("serve", "--port", "0", "--root", str(tmp_path), "--drain-time", "600")
    process, lines = start_command(arguments, None, "", {})
    with lines:
        try:
            url = lines.readline().rpartition(" on ")[2].split()[0]
            assert ask(url + "/readyz") == (200, {"state": "READY"})
            assert process.pid is not None
            os.kill(process.pid, signal.SIGTERM)
            assert (lines.readline(), ask(url + "/readyz")[0]) == ("hsparse is stopping\n", 503)
            assert ask(url + "/livez")[0] == 200
            path = store_numbers(url, "/home/admin/a.h5")
            with urllib.request.urlopen(url + path, timeout=20) as reply:
                assert reply.headers["Connection"] == "close"
            os.kill(process.pid, signal.SIGTERM)  # the second one ends the wait
            process.join(20)
            assert process.exitcode == 0
        finally:
            process.kill()
            process.join()


def test_users_and_their_rights(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    for name, flags in (("ann", ["--group", "beam"]), ("bob", []), ("root", ["--admin"])):
        command = [*COMMAND, "user", "add", name, "--password-file", str(file), *flags]
        subprocess.run(command, input=f"{name}-secret\n", text=True, check=True, capture_output=True)
    with server_process("--root", str(tmp_path / "data"), HSPARSE_PASSWORD_FILE=str(file)) as server:
        domain = f"{server.url}/?domain=/home/ann/a.h5"
        assert ask(domain, "PUT", {}, "ann:ann-secret")[0] == 201
        assert (ask(domain, user="ann:ann-secret")[0], ask(domain, user="ann:wrong")[0]) == (200, 401)
        assert (ask(domain, user="bob:bob-secret")[0], ask(domain)[0]) == (403, 403)
        assert ask(domain, user="root:root-secret")[0] == 200
        acl = f"{server.url}/acls/bob?domain=/home/ann/a.h5"
        assert ask(acl, "PUT", {"read": True}, "bob:bob-secret")[0] == 403
        assert ask(acl, "PUT", {"read": True}, "ann:ann-secret")[0] == 201
        assert ask(domain, user="bob:bob-secret")[0] == 200
        assert ask(domain, "DELETE", user="bob:bob-secret")[0] == 403
        assert ask(server.url + "/about", user="ann:ann-secret")[1]["username"] == "ann"


def test_a_body_cut_short_applies_nothing(tmp_path: Path) -> None:
    with server_process("--root", str(tmp_path)) as server:
        path = store_numbers(server.url, "/home/admin/a.h5")
        host, port = server.url.removeprefix("http://").split(":")
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: 16\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + bytes(8))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1000)
        assert ask(server.url + path)[1]["value"] == [1, 2, 3, 4]


def test_what_is_not_http_is_refused_in_json_and_not_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server_process("--root", str(tmp_path / "data"), "--log-level", "DEBUG", log=log) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization sesame\r\n\r\n")
            answer = connection.makefile("rb").read()
        assert server.stop() == 0
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (head.split()[1], json.loads(body)["error"]["kind"]) == (b"400", "bad_request")
    assert "refused an invalid HTTP request" in log.read_text()
    assert "sesame" not in log.read_text()


REFUSED = {
    "open without passwords": (["serve", "--host", "0.0.0.0"], "--password-file"),
    "two stores": (["serve", "--root", "x", "--bucket", "y"], "omit --root"),
    "a bucket twice": (["serve", "--bucket", "x", "--bucket", "x"], "once"),
    "a bad port": (["serve", "--port", "99999"], "--port"),
    "a data node without a token": (["dn"], "openssl rand -hex 32"),
    "a service node without a token": (["sn"], "HSPARSE_NODE_TOKEN"),
    "a blank token": (["dn", "--host", "0.0.0.0"], "HSPARSE_NODE_TOKEN"),
    "a bad log level": (["serve", "--log-level", "LOUD"], "--log-level"),
    "one writer in several processes": (["serve", "--single-writer", "--dn", "2"], "--single-writer"),
    "a missing key file": (["serve", "--key-file", "/nonexistent/keys"], "hsparse key add"),
    "an issuer without an audience": (
        ["serve", "--oidc-issuer", "https://login.example.org"],
        "--oidc-audience",
    ),
    "an issuer that could be anybody": (
        ["serve", "--oidc-issuer", "http://login.example.org", "--oidc-audience", "x"],
        "https",
    ),
    "admins among nobody": (["serve", "--admins", "ann"], "--admins"),
    "a rate below none": (["serve", "--rate-limit", "-1"], "--rate-limit"),
    "a compression that is none": (["serve", "--compress", "zip"], "--compress"),
    "a missing password file": (
        ["serve", "--password-file", "/nonexistent/passwords"],
        "/nonexistent/passwords",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, remedy = REFUSED[name]
    monkeypatch.setenv("HSPARSE_NODE_TOKEN", " " if name == "a blank token" else "")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert remedy in message
    assert len(message.splitlines()) == 1


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with server_process("--root", str(tmp_path)) as server:
        port = server.url.rpartition(":")[2]
        another = str(tmp_path / "another")
        status, said = ended_command("serve", "--port", port, "--root", another, log=tmp_path / "log")
    assert status == 2
    assert port in said


@pytest.mark.parametrize("command", ["serve", "sn", "dn"])
def test_every_flag_has_help_and_a_variable(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    flags = [line.split()[0].rstrip(",") for line in text.splitlines() if line.startswith("  --")]
    assert flags
    for flag in flags:
        assert f"HSPARSE_{flag.removeprefix('--').replace('-', '_').upper()}" in text


def test_it_sets_the_number_of_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, parameter: int, value: int) -> int:
            calls.append((parameter, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    limit_arenas()
    assert calls == [(-8, 2)]


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    limit_arenas()


@pytest.mark.parametrize("nodes", [[], ["--dn", "2"]])
def test_directories_beside_the_root_are_buckets(tmp_path: Path, nodes: list[str]) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "third").mkdir()
    flags = ["--root", str(tmp_path / "data"), "--no-fsync", "--bucket", "other", "--bucket", "third", *nodes]
    with server_process(*flags) as server:
        for bucket in ("data", "other", "third"):
            made = urllib.request.Request(
                f"{server.url}/?domain=/home/admin/a.h5&bucket={bucket}", method="PUT"
            )
            assert urllib.request.urlopen(made).status == 201
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{server.url}/?domain=/home/admin/a.h5&bucket=fourth")
        assert server.stop() == 0
    for bucket in ("data", "other", "third"):
        assert (tmp_path / bucket / "home/admin/a.h5/.domain.json").exists()


NUMBERS = itertools.count()
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture
def shared_flags(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The flags of servers of a new bucket."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket = f"shared-{next(NUMBERS)}"
    make_bucket(moto_endpoint, bucket)
    return ("--bucket", bucket, "--s3-endpoint", moto_endpoint, "--s3-region", "us-east-1")


@pytest.fixture(params=["s3", pytest.param("az", marks=pytest.mark.needs(*PROGRAMS)), "gs"])
def any_flags(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The flags of servers of a new bucket of each cloud, whose account is in the environment."""
    if request.param == "s3":
        found: tuple[str, ...] = request.getfixturevalue("shared_flags")
        return found
    name = f"shared-{next(NUMBERS)}"
    if request.param == "az":
        endpoint = request.getfixturevalue("azurite_endpoint")
        make_container(endpoint, name)
        variables = azure_variables(endpoint)
    else:
        google = request.getfixturevalue("google")
        google.make_bucket(name)
        variables = google_variables(google.url)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    return ("--bucket", f"{request.param}://{name}")


def member_lines(shared_flags: tuple[str, ...], capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    capsys.readouterr()
    assert main(["nodes", *shared_flags, *more]) == 0
    return capsys.readouterr().out.splitlines()


def test_two_servers_read_what_the_other_wrote_at_once(
    any_flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    shared_flags = any_flags
    with server_process(*shared_flags, "--lease", "0.5") as first:
        path = store_numbers(first.url, "/home/admin/a.h5")
        with server_process(*shared_flags, "--lease", "0.5") as second:
            servers = (first.url, second.url)
            lines = member_lines(shared_flags, capsys)
            assert [line.split()[2] for line in lines[1:]] == ["server", "server"]
            for number in range(4):
                values = [number, 0, number, -number]
                assert ask(servers[number % 2] + path, "PUT", {"value": values})[0] == 200
                assert [ask(url + path)[1]["value"] for url in servers] == [values] * 2
            write_at_once(servers, path)
            assert second.stop() == 0
        assert ask(first.url + path, "PUT", {"value": [7, 7, 7, 7]})[0] == 200
        first.kill()
    with server_process(*shared_flags, "--lease", "0.5") as third:
        assert ask(third.url + path)[1]["value"] == [7, 7, 7, 7]
        assert len(member_lines(shared_flags, capsys)) == 2, "the dead one was missed"
        assert third.stop() == 0
    assert member_lines(shared_flags, capsys) == ["epoch 6, 0 data nodes"]


def write_at_once(servers: tuple[str, ...], path: str) -> None:
    """Write an element each from both servers, again and again at the same time: no write is lost."""

    def work(place: int) -> None:
        body = {"start": [place], "stop": [place + 1], "value": [100 + place]}
        for _ in range(3):
            assert ask(servers[place % 2] + path, "PUT", body)[0] == 200

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ask(url + path)[1]["value"] for url in servers] == [[100, 101, 102, 103]] * 2


def test_a_damaged_list_is_rebuilt_while_a_server_runs(
    shared_flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with server_process(*shared_flags, "--lease", "0.25") as server:
        path = store_numbers(server.url, "/home/admin/a.h5")
        asyncio.run(damage(*shared_flags[1::2]))
        assert ask(server.url + path, "PUT", {"value": [5, 6, 7, 8]})[0] == 200
        lines = member_lines(shared_flags, capsys, "--rebuild")
        assert "revoking 1 leases" in lines[0]
        assert ask(server.url + path)[1]["value"] == [5, 6, 7, 8]
        assert ask(server.url + path, "PUT", {"value": [1, 2, 3, 4]})[0] == 200, "it waits for its lease"
        with server_process(*shared_flags, "--lease", "0.25") as other:
            assert ask(other.url + path)[1]["value"] == [1, 2, 3, 4]
            assert len(member_lines(shared_flags, capsys)) == 3


async def damage(bucket: str, endpoint: str, region: str) -> None:
    store = await S3Store(bucket, endpoint=endpoint, region=region).open()
    await store.put(KEY, b"{")
    await store.close()
