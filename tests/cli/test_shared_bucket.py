"""Processes of `hsparse serve` that share a bucket: each reads what the other wrote, and one that dies is missed."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from hsparse.cli.main import main
from hsparse.cluster.membership_object import KEY
from hsparse.storage.s3.s3_store import S3Store
from tests.cli.test_serve import ask, store_numbers
from tests.support.azurite import PROGRAMS, azure_variables, make_container
from tests.support.google_storage import google_variables
from tests.support.s3_servers import make_bucket
from tests.support.server_process import server_process

NUMBERS = itertools.count()
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture
def flags(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
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
        found: tuple[str, ...] = request.getfixturevalue("flags")
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


def member_lines(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    capsys.readouterr()
    assert main(["nodes", *flags, *more]) == 0
    return capsys.readouterr().out.splitlines()


def test_two_servers_read_what_the_other_wrote_at_once(
    any_flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = any_flags
    with server_process(*flags, "--lease", "0.5") as first:
        path = store_numbers(first.url, "/home/admin/a.h5")
        with server_process(*flags, "--lease", "0.5") as second:
            servers = (first.url, second.url)
            lines = member_lines(flags, capsys)
            assert [line.split()[2] for line in lines[1:]] == ["server", "server"]
            for number in range(4):
                values = [number, 0, number, -number]
                assert ask(servers[number % 2] + path, "PUT", {"value": values})[0] == 200
                assert [ask(url + path)[1]["value"] for url in servers] == [values] * 2
            write_at_once(servers, path)
            assert second.stop() == 0
        assert ask(first.url + path, "PUT", {"value": [7, 7, 7, 7]})[0] == 200
        first.kill()
    with server_process(*flags, "--lease", "0.5") as third:
        assert ask(third.url + path)[1]["value"] == [7, 7, 7, 7]
        assert len(member_lines(flags, capsys)) == 2, "the dead one was missed"
        assert third.stop() == 0
    assert member_lines(flags, capsys) == ["epoch 6, 0 data nodes"]


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
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with server_process(*flags, "--lease", "0.25") as server:
        path = store_numbers(server.url, "/home/admin/a.h5")
        asyncio.run(damage(*flags[1::2]))
        assert ask(server.url + path, "PUT", {"value": [5, 6, 7, 8]})[0] == 200
        lines = member_lines(flags, capsys, "--rebuild")
        assert "revoking 1 leases" in lines[0]
        assert ask(server.url + path)[1]["value"] == [5, 6, 7, 8]
        assert ask(server.url + path, "PUT", {"value": [1, 2, 3, 4]})[0] == 200, "it waits for its lease"
        with server_process(*flags, "--lease", "0.25") as other:
            assert ask(other.url + path)[1]["value"] == [1, 2, 3, 4]
            assert len(member_lines(flags, capsys)) == 3


async def damage(bucket: str, endpoint: str, region: str) -> None:
    store = await S3Store(bucket, endpoint=endpoint, region=region).open()
    await store.put(KEY, b"{")
    await store.close()
