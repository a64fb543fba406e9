"""Files that a web server lists are domains: what is followed and read, and which servers are refused."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest

import hsparse
from hsparse.cli.main import main
from hsparse.hdf5.in_place import http_files
from tests.sn.in_place.conftest import DATA, ask, listed, served

LINKS = """<html><body><a href="../">up</a><a href="?C=N;O=D">Name</a><a href="run.h5">x</a><a href="sub/">s</a>
<a href="/dir/absolute.h5">a</a><a href="http://127.0.0.2:9/far.h5">f</a><a href="//127.0.0.2/far.h5">f</a>
<a href="../above.h5">a</a><a href="sub/deep.h5">d</a><a href="%2e%2e%2fabove.h5">e</a><a href=".hidden.h5">h</a>
<a href="gone.h5">g</a><a href="moved.h5">m</a><a href="a%20b.h5">b</a><a href="run.h5#part">p</a><a>no</a>
<a href="./">here</a><a href="http://[">bad</a></body></html>"""


class Handler(SimpleHTTPRequestHandler):
    """Answers ranges, as nginx does, with an ETag; the page of the first folder is `LINKS`."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def send_head(self) -> Any:
        self.asked.append(f"{self.command} {self.path} {self.headers.get('Range', '')}")
        if self.path == "/dir/":
            return self._answer(200, LINKS.encode(), {})
        if self.path == "/dir/moved.h5":
            return self._answer(302, b"", {"Location": "http://127.0.0.2:9/far.h5"})
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return super().send_head()
        data, status = path.read_bytes(), path.stat()
        headers = self.state(status)
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None or not self.ranges:
            return self._answer(200, data, headers)
        first, last = int(found[1]), int(found[2])
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return self._answer(206, data[first : last + 1], headers)

    ranges = True

    def state(self, status: os.stat_result) -> dict[str, str]:
        """Return the headers that tell a file's state."""
        return {"ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"'}

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


class NoRanges(Handler):
    ranges = False


class NoState(Handler):
    def state(self, status: os.stat_result) -> dict[str, str]:
        return {"ETag": 'W/"1"'}


class Dated(Handler):
    def state(self, status: os.stat_result) -> dict[str, str]:
        return {"Last-Modified": self.date_time_string(status.st_mtime)}


class WebServer(ThreadingHTTPServer):
    """A server that says nothing where a client leaves before it has all of an answer."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def web_server(kind: type[Handler], root: Path) -> Iterator[str]:
    """Run a web server over a directory; the value is the URL of its folder `dir`."""
    with WebServer(("127.0.0.1", 0), partial(kind, directory=str(root))) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/dir"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("web")
    place = root / "dir"
    (place / "sub").mkdir(parents=True)
    with h5py.File(place / "run.h5", "w") as file:
        file.create_dataset("x", data=DATA, chunks=(64, 32), compression="gzip")
    layout = h5py.VirtualLayout(DATA.shape, DATA.dtype)
    layout[...] = h5py.VirtualSource("../run.h5", "x", DATA.shape)
    with h5py.File(place / "sub" / "virtual.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    layout[...] = h5py.VirtualSource("../../above.h5", "x", DATA.shape)
    with h5py.File(place / "sub" / "up.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    for name in ("above.h5", "dir/absolute.h5", "dir/a b.h5", "dir/.hidden.h5"):
        (root / name).write_bytes((place / "run.h5").read_bytes())
    (place / "plain").mkdir()
    (place / "plain" / "run").write_bytes((place / "run.h5").read_bytes())
    (place / "plain" / "notes").write_text("no HDF5 file")
    return root


@pytest.fixture(scope="module")
def url(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with web_server(Handler, root) as place, served(tmp_path_factory.mktemp("root"), f"runs={place}") as url:
        yield url


def test_pages_list_what_is_directly_below_them(url: str) -> None:
    """Nothing of other hosts or folders, nothing hidden, nothing that is not there or elsewhere."""
    assert listed(url, "/runs/") == ["a b.h5", "absolute.h5", "run.h5", "sub"]
    assert listed(url, "/runs/sub/") == ["up.h5", "virtual.h5"]


def test_names_without_a_suffix_are_looked_at(url: str) -> None:
    Handler.asked.clear()
    assert listed(url, "/runs/plain/") == ["run"]
    assert "GET /dir/plain/notes bytes=0-7" in Handler.asked


@pytest.mark.parametrize("name", ["run.h5", "a b.h5", "plain/run"])
def test_values_are_those_of_the_file(url: str, name: str) -> None:
    with hsparse.open(f"{url}/runs/{name}") as file:
        assert np.array_equal(file["x"][5:300, ::7], DATA[5:300, ::7])


def test_sources_are_below_the_place(url: str) -> None:
    with hsparse.open(f"{url}/runs/sub/virtual.h5") as file:
        assert np.array_equal(file["v"][...], DATA)
    Handler.asked.clear()
    with (
        hsparse.open(f"{url}/runs/sub/up.h5") as file,
        pytest.raises(hsparse.HsparseError, match=r"above\.h5' is outside"),
    ):
        file["v"][0]
    assert not any("above" in one for one in Handler.asked)


@pytest.mark.parametrize("name", ["none.h5", "moved.h5", "none", ".hidden.h5", "sub/%2e%2e/%2e%2e/above.h5"])
def test_what_is_not_there(url: str, name: str) -> None:
    Handler.asked.clear()
    assert ask(url, f"/groups?domain=/runs/{name}")[0] in (400, 403, 404)
    assert not any("above" in one for one in Handler.asked)


@pytest.mark.parametrize("kind", [Handler, Dated])
def test_a_file_that_is_changed_is_another_domain(kind: type[Handler], tmp_path: Path) -> None:
    place = tmp_path / "web" / "dir"
    place.mkdir(parents=True)

    def write(value: int) -> None:
        with h5py.File(place / "run.h5", "w") as file:
            file["x"] = np.full(100_000, value)
        os.utime(place / "run.h5", (value, value))

    write(1)
    with web_server(kind, place.parent) as web, served(tmp_path / "root", f"runs={web}") as url:
        with hsparse.open(f"{url}/runs/run.h5") as file:
            old = file["x"]
            write(2)
            with pytest.raises(hsparse.HsparseError, match="is not in the domain"):
                old[0]
        with hsparse.open(f"{url}/runs/run.h5") as file:
            assert file["x"][0] == 2


@pytest.mark.parametrize(
    ("kind", "folder", "said"),
    [
        (NoRanges, "", "127.0.0.1 does not support range requests"),
        (NoState, "", "127.0.0.1 sends no size, or neither a strong ETag nor"),
        (Handler, "/none", "There is no"),
        (Handler, "?a=b", "the URL must be like https://host/folder/"),
    ],
)
def test_servers_that_are_refused(
    root: Path,
    tmp_path: Path,
    kind: type[Handler],
    folder: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with web_server(kind, root) as place:
        files = f"runs={place}{folder}"
        assert main(["serve", "--root", str(tmp_path), "--port", "0", "--files", files]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert f"--files {place}{folder}" in lines[0]
    assert said in lines[0]


def test_a_server_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_files, "START_SECONDS", 0.2)
    files = "runs=http://127.0.0.1:9/dir"
    assert main(["serve", "--root", str(tmp_path), "--port", "0", "--files", files]) == 2
    assert "The server 127.0.0.1 gave no answer" in capsys.readouterr().err


class Weather(Handler):
    """Answers `faults` first, each once for a path, as what stands before a web server does."""

    faults: ClassVar[list[str]] = []
    met: ClassVar[set[str]] = set()
    stays: ClassVar[bool] = False

    def send_head(self) -> Any:
        where = f"{self.command} {self.path}"
        if self.path == "/dir/":
            answer = partial(self._answer, 200, b'<a href="first.h5">first</a>', {})
        else:
            answer = super().send_head
        if not self.faults or (where in self.met and not self.stays):
            return answer()
        self.met.add(where)
        fault = self.faults[0]
        if fault == "reset":
            self.close_connection = True
            return None
        if fault == "cut":
            path = Path(self.translate_path(self.path))
            if self.command == "HEAD" or not path.is_file():
                return answer()
            data, span = path.read_bytes(), self.headers["Range"].removeprefix("bytes=")
            self.send_response(206)
            for name, value in self.state(path.stat()).items():
                self.send_header(name, value)
            self.send_header("Content-Range", f"bytes {span}/{len(data)}")
            first, last = map(int, span.split("-"))
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            self.wfile.write(data[first : (first + last) // 2])
            self.close_connection = True
            return None
        status, _, body = fault.partition(" ")
        self.send_response(int(status))
        for name, value in {"Retry-After": "0", "Content-Type": "text/html", "ETag": '"page"'}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body.encode())
        return None


WEB_FAULTS = [
    "404 default backend", "404 ", "408 ", "429 ", "500 error", "502 <html>", "503 ", "504 ", "520 ", "204 ",
    "reset", "cut", "200 <html>sign in</html>",
]  # fmt: skip


@pytest.fixture(scope="module")
def under_weather(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server of a place that has faults, and the place's folder."""
    root = tmp_path_factory.mktemp("weather")
    place = root / "dir"
    place.mkdir()
    with h5py.File(place / "first.h5", "w") as file:
        file["x"] = DATA
    with web_server(Weather, root) as web, served(root / "store", f"web={web}") as url:
        yield url, place


@pytest.fixture
def weather(
    under_weather: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """The URL of the server, and a file of which it knows nothing."""
    url, place = under_weather
    monkeypatch.setattr(Weather, "faults", [])
    monkeypatch.setattr(Weather, "met", set())
    name = f"{tmp_path.name}.h5"
    (place / name).write_bytes((place / "first.h5").read_bytes())
    return url, name


@pytest.mark.parametrize("fault", WEB_FAULTS)
def test_faults_of_the_web_server_pass(
    weather: tuple[str, str], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 404 of another too: the place's page is not there either, so that nothing is known to be absent."""
    url, name = weather
    monkeypatch.setattr(Weather, "faults", [fault])
    with hsparse.open(f"/web/{name}", endpoint=url, retries=0) as f:
        assert np.array_equal(f["x"][:], DATA)
    assert Weather.met


@pytest.mark.parametrize("fault", WEB_FAULTS)
def test_faults_that_stay_are_a_503(
    weather: tuple[str, str], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, name = weather
    monkeypatch.setattr(Weather, "faults", [fault])
    monkeypatch.setattr(Weather, "stays", True)
    monkeypatch.setattr(http_files, "DEADLINE", 0.2)
    status, message = ask(url, f"/datasets?domain=/web/{name}")
    assert status == 503, message
    assert "try again later" in message
    monkeypatch.setattr(Weather, "faults", [])
    monkeypatch.setattr(http_files, "DEADLINE", 30.0)
    with hsparse.open(f"/web/{name}", endpoint=url, retries=0) as f:
        assert np.array_equal(f["x"][:], DATA)
