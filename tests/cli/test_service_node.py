"""What jobs' processes are given, where the node is and an environment without its secret; a node that is not ready."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from aiohttp import web

from hsparse.cli import serve
from hsparse.cli.node_process import listening
from hsparse.clock import SystemClock
from hsparse.cluster.membership_object import MembershipObject
from hsparse.config import job_environment, load_settings
from hsparse.errors import Misconfigured, Unanswered
from hsparse.hdf5.jobs.handlers import loopback
from hsparse.sn.data_nodes import cluster_nodes
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.storage.posix import PosixStore
from hsparse.wire.record_message import ReadObjects
from hsparse.wire.remote_node import RemoteNode
from tests.cli.test_serve import ask
from tests.support.server_process import start_command
from tests.testing.memory_store import MemoryStore


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
    monkeypatch.setenv("HSPARSE_NODE_TOKEN", "secret")
    monkeypatch.setenv("HSPARSE_USER", "someone")
    monkeypatch.setenv("HSPARSE_PASSWORD", "secret")
    monkeypatch.setenv("HSPARSE_TOKEN", "secret")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("HSPARSE_S3_REGION", "us-east-1")
    found = job_environment(load_settings(s3_endpoint="http://minio.example.org:9000", requester_pays=True))
    assert "secret" not in found.values()
    assert "HSPARSE_USER" not in found
    assert found["AWS_PROFILE"] == "lab"
    assert found["HSPARSE_S3_ENDPOINT"] == "http://minio.example.org:9000"
    assert found["HSPARSE_S3_REGION"] == "us-east-1"
    assert (found["HSPARSE_REQUESTER_PAYS"], found["HSPARSE_UNSIGNED"]) == ("1", "0")


async def test_a_server_waits_for_members_of_another_token_that_were_killed(
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
    [("no-such-host.invalid", "choose a --host"), ("192.0.2.1", "choose a --host"), ("127.0.0.1", "--port")],
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
