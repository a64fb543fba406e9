"""Ceph's S3 server on loopback: one monitor, one OSD in memory and `radosgw`, without a manager and systemd.

`python -m tests.support.radosgw` runs one until Ctrl-C. It needs Debian's packages `radosgw`, `ceph-mon`,
`ceph-osd` and `ceph-common` (a download of 61 MB, 269 MB installed), but no rights of root. It starts in ten seconds.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
PACKAGES = ("radosgw", "ceph-mon", "ceph-osd", "ceph-common")
START_SECONDS, STOP_SECONDS = 60.0, 20.0
USERS = ("test", "guest")
"""The users, whose names are their access keys and secrets."""
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
mon initial members = a
public addr = 127.0.0.1
keyring = {directory}/keyring
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data avail warn = 0
mon data avail crit = 0
mon data = {directory}/mon
osd data = {directory}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
run dir = {directory}
admin socket = {directory}/$name.asok
pid file = {directory}/$name.pid
log file = {directory}/$name.log
debug rgw = 0

[client.rgw]
rgw data = {directory}/rgw
rgw frontends = beast endpoint={host}:{gateway}
rgw dynamic resharding = false
"""


@contextmanager
def radosgw_server(directory: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Run the servers with their files in an empty directory; the value is the URL of the gateway at address `host`.

    It takes signed requests of `USERS` and has no buckets.
    """
    identity, disk, monitor, gateway = str(uuid.uuid4()), str(uuid.uuid4()), _free_port(), _free_port()
    path = directory / "ceph.conf"
    path.write_text(
        CONFIGURATION.format(fsid=identity, monitor=monitor, gateway=gateway, directory=directory, host=host)
    )
    for name in ("mon", "osd", "rgw"):
        (directory / name).mkdir()
    _make_keys(directory / "keyring")
    with ExitStack() as servers:

        def run(*command: str) -> None:
            _run(*command, "--conf", str(path))

        def serve(*command: str) -> None:
            servers.enter_context(_server(directory, *command, "--conf", str(path), "-f"))

        map_file = str(directory / "monmap")
        _run(
            "monmaptool", "--create", "--fsid", identity, "--addv", "a", f"[v2:127.0.0.1:{monitor}]", map_file
        )
        run("ceph-mon", "--id", "a", "--mkfs", "--monmap", map_file, "--keyring", str(directory / "keyring"))
        serve("ceph-mon", "--id", "a")
        run("ceph", "osd", "new", disk)
        run("ceph-osd", "--id", "0", "--mkfs", "--osd-uuid", disk)
        serve("ceph-osd", "--id", "0")
        serve("radosgw", "--name", "client.rgw")
        url = f"http://{host}:{gateway}"
        _wait(url, directory)
        for user in USERS:
            keys = (f"--access-key={user}", f"--secret-key={user}", f"--display-name={user}")
            run("radosgw-admin", "--name", "client.rgw", "user", "create", f"--uid={user}", *keys)
        yield url


def _make_keys(path: Path) -> None:
    """Write one file with the keys of all servers; each may do everything."""
    _run("ceph-authtool", "--create-keyring", str(path))
    rights = [word for server in ("mon", "osd") for word in ("--cap", server, "allow *")]
    for name in ("mon.", "osd.0", "client.admin", "client.rgw"):
        _run("ceph-authtool", str(path), "--gen-key", "--name", name, *rights)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended {done.returncode}: {done.stderr}")


@contextmanager
def _server(directory: Path, *command: str) -> Iterator[None]:
    """Run a server; it is told to end, and killed if it does not."""
    with (directory / f"{command[0]}.out").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, directory: Path) -> None:
    """Wait until the gateway answers: it listens once it has made its pools."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=START_SECONDS):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    output = "".join(path.read_text() for path in sorted(directory.glob("*.out")))
    raise RuntimeError(f"radosgw did not answer at {url} in {START_SECONDS:.0f} s: {output}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def main() -> None:
    """Serve until a signal to stop."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise SystemExit(f"{', '.join(missing)} not installed: apt-get install {' '.join(PACKAGES)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        TemporaryDirectory(prefix="radosgw-") as directory,
        radosgw_server(Path(directory)) as url,
    ):
        print(f"radosgw on {url}, access key and secret {USERS[0]}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
