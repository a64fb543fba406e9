"""The log of a node's process, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from hsparse.cli.node_log import configure_log, make_handler
from hsparse.client.connection import Connection
from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.errors import Misconfigured, StoreFailed
from hsparse.model.acl import Principal
from hsparse.sections import LogFormat, ServerSettings
from hsparse.sn.policies.log import RequestLog
from hsparse.storage.object_store import Stored
from hsparse.wire.remote_node import RemoteNode
from tests.support.rest_client import RestClient
from tests.support.server_process import server_process
from tests.testing.memory_store import MemoryStore


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
    flags = (
        "--root",
        str(tmp_path / "root"),
        "--no-fsync",
        "--dn",
        "1",
        "--access-log",
        "--log-format",
        "json",
    )
    with server_process(*flags, "--slow-request", "0.000001", log=log) as server:
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
