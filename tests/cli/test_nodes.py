"""Processes of nodes: what they are given, their logs, whether they are ready, and `hsparse nodes`."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import signal
import socket
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hsparse.cli import serve
from hsparse.cli.data_node import serve_member
from hsparse.cli.main import main
from hsparse.cli.node_log import configure_log, make_handler
from hsparse.cli.node_process import listening
from hsparse.client.connection import Connection
from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import KEY, MembershipObject
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.config import Settings, job_environment, load_settings
from hsparse.dn.membership.member_node import MemberNode
from hsparse.dn.metrics import NodeMetrics, NodeState
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.errors import Misconfigured, StoreFailed, Unanswered
from hsparse.hdf5.jobs.handlers import loopback
from hsparse.model.acl import Principal
from hsparse.sections import LogFormat, ServerSettings
from hsparse.sn.data_nodes import cluster_nodes
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.policies.log import RequestLog
from hsparse.storage.object_store import Stored
from hsparse.storage.posix import PosixStore
from hsparse.wire.record_message import ReadObjects
from hsparse.wire.remote_node import RemoteNode
from tests.cli.test_serve import ask
from tests.support.rest_client import RestClient
from tests.support.server_process import server_process, start_command
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore


async def fill(root: Path) -> None:
    store = PosixStore(root, fsync=False, wal=False)
    stored = MembershipObject(store, "secret")
    for id in ("dn-a", "dn-b"):
        await stored.join(id, f"http://{id}:1")
    await stored.leave("dn-a")
    await LeaseObjects(store).take("dn-b", 2.0)
    await store.close()


async def damage(root: Path) -> None:
    store = PosixStore(root, fsync=False, wal=False)
    await store.put(KEY, b"{")
    await store.close()


def test_members_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(tmp_path))
    assert run("nodes", "--root", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "epoch 3, 1 data nodes",
        "dn-b  http://dn-b:1  owner  lease held  version 1",
        "dn-a  http://dn-a:1  leaving  no lease  version 1",
    ]


def test_a_damaged_list_is_refused_and_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(damage(tmp_path))
    assert run("nodes", "--root", str(tmp_path)) == 2
    assert "--rebuild" in capsys.readouterr().err
    assert run("nodes", "--root", str(tmp_path), "--rebuild") == 0
    assert "0 data nodes" in capsys.readouterr().out
    assert run("nodes", "--root", str(tmp_path)) == 0


def test_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("--root", str(tmp_path / "none")), ()):
        assert run("nodes", *words) == 2
        assert "There is no directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_store_the_server_is_asked(
    two_nodes_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HSPARSE_ENDPOINT", two_nodes_url)
    assert run("nodes") == 0
    first, *nodes = capsys.readouterr().out.splitlines()
    assert first == f"{two_nodes_url}, {len(nodes)} data nodes"
    assert all("READY" in one for one in nodes)
    assert nodes
    assert run("nodes", "--rebuild") == 2  # of a store
    assert list(tmp_path.iterdir()) == []


def run(*arguments: str) -> int:
    return main(list(arguments))


@pytest.mark.parametrize(
    ("listens", "reached"),
    [
        ("http://127.0.0.1:5101", "http://127.0.0.1:5101"),
        ("http://0.0.0.0:5101", "http://127.0.0.1:5101"),
        ("http://[::]:5101", "http://[::1]:5101"),
        ("http://10.0.0.5:5101", "http://10.0.0.5:5101"),
    ],
)
def test_a_node_reaches_itself(listens: str, reached: str) -> None:
    assert loopback(listens) == reached


def test_the_environment_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = dict.fromkeys(("HSPARSE_NODE_TOKEN", "HSPARSE_PASSWORD", "HSPARSE_TOKEN"), "secret")
    kept = {"AWS_PROFILE": "lab", "HSPARSE_S3_REGION": "us-east-1"}
    for name, value in (secrets | kept | {"HSPARSE_USER": "someone"}).items():
        monkeypatch.setenv(name, value)
    found = job_environment(load_settings(s3_endpoint="http://minio.example.org:9000", requester_pays=True))
    assert "secret" not in found.values()
    assert "HSPARSE_USER" not in found
    others = {"HSPARSE_S3_ENDPOINT": "http://minio.example.org:9000", "HSPARSE_REQUESTER_PAYS": "1"}
    assert found.items() >= (kept | others | {"HSPARSE_UNSIGNED": "0"}).items()


async def test_a_server_waits_for_killed_members_of_another_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "MEMBERSHIP_READ_SECONDS", 0.01)
    monkeypatch.setattr(serve, "START_SECONDS", 0.05)
    other = Misconfigured("Another token.")
    found: list[Misconfigured | None] = [other, other, None, other]
    owners, stop = Owners(FixedNodes({}, lambda: found.pop(0))), asyncio.Event()
    await serve.wait_until_ready(owners, 0.0, stop)
    assert found == [other]
    found += [other] * 5
    await serve.wait_until_ready(owners, 0.0, stop)
    assert found == [other], "they are alive"
    stop.set()
    await serve.wait_until_ready(owners, 3600.0, stop)
    assert found == []


async def test_without_data_nodes_it_is_not_ready_and_says_so_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first requests wait for a data node that starts; once there has been none for a while none waits."""
    monkeypatch.setattr(cluster_nodes, "NO_NODE_SECONDS", 0.0)
    clock = SystemClock()
    stored = MembershipObject(MemoryStore(), "token")
    nodes = cluster_nodes.ClusterNodes(stored, clock, lambda url: RemoteNode(url, "token"))
    owners = Owners(nodes)
    error = await owners.readiness_error()
    assert error is not None
    assert "start `hsparse dn`" in error.message
    with pytest.raises(Unanswered, match="There is no data node"):
        await owners.ask_owner("g-1", ReadObjects(("g-1",)))
    await stored.join("dn-a", "http://127.0.0.1:1")
    monkeypatch.setattr(cluster_nodes, "MEMBERSHIP_READ_SECONDS", 0.0)
    nodes._next_look = 0.0
    assert await owners.readiness_error() is None
    await nodes.close()


@pytest.mark.parametrize(
    ("host", "said"),
    [("no-such-host.invalid", "set --host"), ("192.0.2.1", "set --host"), ("127.0.0.1", "--port")],
)
async def test_an_address_that_cannot_be_listened_on(host: str, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = load_settings(host=host, port=taken.getsockname()[1])
        with pytest.raises(Misconfigured, match=said):
            async with listening(web.AppRunner(web.Application()), settings):
                pass


async def join(root: Path, token: str) -> None:
    store = PosixStore(root, fsync=False, wal=False)
    await MembershipObject(store, token).join("dn-a", "http://127.0.0.1:1")
    await store.close()


def test_a_service_node_with_another_token_than_the_data_nodes_is_not_ready(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    asyncio.run(join(root, "what-the-others-have"))
    flags = ("sn", "--port", "0", "--root", str(root))
    process, lines = start_command(flags, log, "", {"HSPARSE_NODE_TOKEN": "what-this-one-has"})
    with lines:
        url = lines.readline().rpartition(" on ")[2].split()[0]
        try:
            status, answer = ask(url + "/readyz")
            assert status == 503
            assert "HSPARSE_NODE_TOKEN" in answer["error"]["message"]
            assert ask(url + "/about")[1]["state"] == "WAITING"
            status, answer = ask(url + "/?domain=/home/")
            assert (status, answer["error"]["kind"]) == (500, "misconfigured")
            assert process.pid is not None
            os.kill(process.pid, signal.SIGINT)
            process.join(20)
        finally:
            process.kill()
            process.join(20)
    [told] = [
        line for line in log.read_text().splitlines() if "HSPARSE_NODE_TOKEN" in line and "not ready" in line
    ]
    assert "what-t" not in told
    assert "what-the-others-have" not in log.read_text()
    assert "what-this-one-has" not in log.read_text()


TOKEN = "secret"


def settings_of_a_member() -> Settings:
    settings = load_settings()
    return replace(
        settings, server=replace(settings.server, port=0), cluster=replace(settings.cluster, node_token=TOKEN)
    )


async def test_a_data_node_is_not_ready_while_it_leaves() -> None:
    store, clock, stop = FaultyStore(MemoryStore()), SystemClock(), asyncio.Event()
    node = MemberNode(
        lambda ownership: DataService(store, clock, ownership=ownership),
        store,
        clock,
        TOKEN,
        lambda url: RemoteNode(url, TOKEN),
    )
    metrics = NodeMetrics(lambda: NodeState(node.counters(), node.lease_age, len(node.membership.nodes), {}))
    serving = asyncio.create_task(serve_member(stop, node, settings_of_a_member(), metrics, None))
    await node.wait_in_force()
    url = node.membership.urls[node.id]
    async with aiohttp.ClientSession(url) as session:
        async with session.get("/readyz") as reply:
            assert reply.status == 200
        leaving = store.hang("put_if_match", KEY)
        removing = store.hang("put_if_match", KEY, applied=True)
        stop.set()
        for step in (leaving, removing):
            await step.entered.wait()
            async with session.get("/readyz") as reply:
                assert reply.status == 503
            async with session.get("/livez") as reply:
                assert reply.status == 200
            step.release()
    await serving
    await node.close()


def logged(form: LogFormat, id: str | None) -> str:
    """Return what a handler of this form writes of an error, within a request of that id."""
    stream = io.StringIO()
    logger = logging.Logger("hsparse.test")
    logger.addHandler(make_handler(form, stream))
    token = begin_trace(RequestTrace(id)) if id is not None else None
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("It %s.", "failed")
    if token is not None:
        end_trace(token)
    return stream.getvalue()


def test_text() -> None:
    assert re.match(
        r"[\d-]+ [\d:,]+ ERROR hsparse.test \[mine\]: It failed.\nTraceback", logged(LogFormat.TEXT, "mine")
    )
    assert "[-]: It failed." in logged(LogFormat.TEXT, None)


def test_json_has_one_line_with_the_traceback() -> None:
    (line,) = logged(LogFormat.JSON, "mine").splitlines()
    item = json.loads(line)
    assert (item["level"], item["logger"], item["request"]) == ("ERROR", "hsparse.test", "mine")
    assert item["message"] == "It failed."
    assert item["error"].endswith("ValueError: why")


class Defective(MemoryStore):
    """A store that fails by a defect, or as a store does."""

    failure: Exception | None = None

    async def get(self, key: str) -> Stored:
        if self.failure is not None:
            raise self.failure
        return await super().get(key)


@pytest.mark.parametrize("failure", [ValueError("a defect"), StoreFailed("The store is gone.")])
async def test_every_line_of_a_request_has_its_id_on_both_kinds_of_nodes(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hsparse")  # a library that another test imports may have set the root's
    stream, store, clock = io.StringIO(), Defective(), SystemClock()
    handler = make_handler(LogFormat.JSON, stream)
    service = DataService(store, clock)
    logging.getLogger("hsparse").addHandler(handler)
    try:
        async with TestServer(create_node_app(service, "secret", slow=1e-9)) as server:
            remote = RemoteNode(str(server.make_url("/")), "secret")
            admin = Principal("admin", admin=True)
            rest = await RestClient(
                remote, clock, admin, log=lambda metrics: RequestLog(clock, metrics, slow=1e-9)
            ).open()
            store.failure = failure
            headers = {"X-Request-ID": "mine"}
            assert (await rest("GET", "/", headers=headers, domain="/home/x")).status == 500
            await rest.close()
            await remote.close()
    finally:
        logging.getLogger("hsparse").removeHandler(handler)
        await service.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["request"] for line in lines} == {"mine"}
    found = {line["logger"] for line in lines}
    assert {"hsparse.dn.server", "hsparse.sn.policies.log"} <= found


def test_an_unknown_level() -> None:
    with pytest.raises(Misconfigured, match="--log-level LOUD is not DEBUG"):
        configure_log(ServerSettings(log_level="LOUD"))


def test_data_nodes_log_slow_messages_with_the_id_of_the_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = ["--no-fsync", "--dn", "1", "--access-log", "--log-format", "json", "--slow-request", "0.000001"]
    with server_process("--root", str(tmp_path / "root"), *flags, log=log) as server:
        with Connection(server.url, "/x.h5") as connection:
            connection._headers["X-Request-ID"] = "mine"
            connection.json("PUT", "/", {})
        assert server.stop() == 0
    items = [json.loads(line) for line in log.read_text().splitlines()]
    mine = [item for item in items if item["request"] == "mine"]
    (access,) = [item for item in mine if item["level"] == "ACCESS"]
    assert (access["method"], access["domain"], access["status"]) == ("PUT", "/x.h5", 201)
    slow = [item["message"] for item in mine if item.get("logger") == "hsparse.dn.server"]
    assert any(re.match(r"Slow message: ChangeObjects took .* 1 store writes in ", one) for one in slow)
    (whole,) = [
        item["message"] for item in mine if item["level"] == "WARNING" and "Slow request" in item["message"]
    ]
    assert re.match(r"Slow request: PUT / in /x.h5 by admin took .* messages to data nodes in ", whole)
