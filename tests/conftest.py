"""What every test has: an end when it hangs, signals as they are by default, and fresh empty stores of each kind."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import hdf5plugin  # noqa: F401 - before netCDF4, the HDF5 of which would keep h5py's from the filter blosc
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

from hsparse.storage.clouds.obstore_store import ObstoreStore
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.s3.s3_store import S3Store
from tests.lanes import LANES, is_of, is_passed_over
from tests.support.azurite import azure_config, azurite_server, make_container
from tests.support.endurance import ENDURANCE, repeats
from tests.support.find_program import find_program
from tests.support.google_storage import GoogleServer, google_config, google_server
from tests.support.s3_servers import make_bucket, moto_server
from tests.support.server_process import server_process
from tests.testing.memory_store import MemoryStore

TESTS = Path(__file__).parent
NUMBERS = itertools.count()

MakeStore = Callable[..., Awaitable[ObjectStore]]

YOUNG_OBJECTS = 50_000
"""New objects at which the collector looks for cycles; 700 in Python 3.11."""
LONGEST = (
    "test_stateful.py",
    "test_simulation.py",
    "test_cells.py",
    "test_display.py",
    "test_hsload.py",
    "test_served_jobs.py",
    "test_chaos.py",
    "test_memory_bound.py",
    "test_torch.py",
    "test_h5pyd_types.py",
    "test_command.py",
    "test_upgrade.py",
    "test_two_owners.py",
    "test_h5web.py",
    "test_connection_pool.py",
    "test_programs.py",
    "test_s3_export.py",
    "test_round_trips.py",
    "test_mutations.py",
)
"""Files with tests of ten seconds or more, the longest first."""
GRACE = 30
"""Seconds that pytest-timeout's signal has to fail a test that hangs, before its process ends."""
JUDGES = {
    "azurite-blob": "none; make .venv/bin/azurite-blob",
    "bash": "bash",
    "ceph": "ceph-common",
    "ceph-authtool": "ceph-common",
    "ceph-mon": "ceph-mon",
    "ceph-osd": "ceph-osd",
    "chromium": "chromium",
    "curl": "curl",
    "h5diff": "hdf5-tools",
    "h5dump": "hdf5-tools",
    "h5repack": "hdf5-tools",
    "helm": "none; make .venv/bin/helm",
    "ip": "iproute2",
    "jq": "jq",
    "kubectl": "none; make .venv/bin/helm",
    "monmaptool": "ceph-base",
    "node": "nodejs",
    "npm": "npm",
    "od": "coreutils",
    "radosgw": "radosgw",
    "radosgw-admin": "ceph-common",
}
"""Programs that tests need, and Debian's packages with them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what makes the long runs long."""
    parser.addoption("--lane", choices=LANES, help="run the tests of a lane of tests/lanes.py alone")
    parser.addoption("--endure", action="store_true", help="run campaigns at the length of make endure")
    parser.addoption("--examples", type=int, default=None, help="examples a state machine runs")
    parser.addoption("--frames", type=int, default=120, help="frames that 16 writers append in each medium")
    parser.addoption(
        "--campaign", type=float, default=60.0, help="seconds that a cluster has faults of a kind"
    )
    parser.addoption("--attack", type=float, default=0.2, help="seconds that each attack takes")
    parser.addoption("--overload", type=float, default=60.0, help="seconds that a load is offered")
    parser.addoption(
        "--fuzz", type=int, default=None, help="requests made up for each operation, three times"
    )
    parser.addoption("--kills", type=int, default=None, help="how often the chaos test kills a data node")
    parser.addoption("--mutations", type=int, default=None, help="changed HDF5 files that are read")
    parser.addoption(
        "--round-trips", type=int, default=None, help="random domains exported and imported again"
    )
    parser.addoption("--seeds", type=int, default=200, help="seeds of simulated clusters")
    parser.addoption(
        "--programs", type=int, default=None, help="programs of h5py calls compared with h5pyd's"
    )
    parser.addoption(
        "--shared-calls", type=int, default=None, help="calls of threads and processes to one client"
    )
    parser.addoption("--screenshots", action="store_true", help="write the pictures of docs/explorer.md anew")
    parser.addoption("--judges-required", action="store_true", help="skip no test for want of a program")


def pytest_configure(config: pytest.Config) -> None:
    """Undo what the parent ignores, as `make test &` in a script ignores SIGINT; lead a group if a worker of xdist."""
    for number, default in (signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
    if hasattr(config, "workerinput"):
        os.setpgid(0, 0)
    # To read all certificates of this machine takes each process that imports aiohttp a sixth of a second.
    os.environ["SSL_CERT_FILE"] = os.devnull
    # Servers of files keep what they know of them: not in the home of whoever runs the tests.
    os.environ["HSPARSE_FILES_CACHE"] = os.devnull
    ENDURANCE.full = config.getoption("endure") or config.getoption("lane") == "endure"
    # How long an example takes says nothing about it. Each run has other examples, but one that judges a change.
    settings.register_profile(
        "hsparse", deadline=None, max_examples=repeats(50, short=10), derandomize="CI" in os.environ
    )
    settings.load_profile("hsparse")
    gc.disable()


DURATIONS: Counter[str] = Counter()
"""The seconds of each test, with what it set up and took down."""
FEW = 100
"""A run of so many tests is not recorded: it is for one test, or a file."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    DURATIONS[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record how long each test took, the longest first."""
    if not hasattr(session.config, "workerinput") and len(DURATIONS) > FEW:
        lines = [f"{seconds:.3f}\t{name}\n" for name, seconds in DURATIONS.most_common()]
        (session.config.rootpath / ".durations.tsv").write_text("".join(lines))


def pytest_xdist_auto_num_workers() -> int:
    """One more worker than cores: tests wait for the processes that they start. Two more were not faster."""
    return (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files that have nothing of the lane that is asked for."""
    lane = config.getoption("lane")
    if lane is None or collection_path.suffix != ".py":
        return None
    return is_passed_over(collection_path.relative_to(TESTS).as_posix(), lane) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep those of the lane; begin with the longest, so that no core waits for one of them at the end."""
    lane = config.getoption("lane")
    if lane is not None:
        of_lane = [is_of(item, lane) for item in items]
        config.hook.pytest_deselected(
            items=[item for item, kept in zip(items, of_lane, strict=True) if not kept]
        )
        items[:] = [item for item, kept in zip(items, of_lane, strict=True) if kept]
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Keep the collector from looking through all tests and modules again and again: a fifth of all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """End the processes that a worker left behind when it crashed: servers, data nodes, tools."""
    if error:
        with suppress(ProcessLookupError):
            os.killpg(node.gateway._io.popen.pid, signal.SIGKILL)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip a test that needs a program that is not there; with --judges-required it is to fail."""
    needed = [program for mark in item.iter_markers("needs") for program in mark.args]
    missing = [program for program in needed if find_program(program) is None]
    if missing and not item.config.getoption("judges_required"):
        named = ", ".join(f"{program} (Debian: {JUDGES[program]})" for program in missing)
        item.add_marker(pytest.mark.skip(reason=f"not installed: {named}"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say once how to have the programs for want of which tests were skipped."""
    reasons = " ".join(str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
    wanted = {name: package for name, package in JUDGES.items() if f"{name} (Debian: {package})" in reasons}
    if wanted:
        packages = {package for package in wanted.values() if not package.startswith("none; ")}
        makes = {package.removeprefix("none; ") for package in wanted.values()} - packages
        ways = [*([f"apt-get install {' '.join(sorted(packages))}"] if packages else []), *sorted(makes)]
        terminalreporter.write_line(
            f"Tests were skipped for want of {', '.join(wanted)}; to have them: {'; '.join(ways)}"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """End the process when a test hangs where no signal reaches it: in uvloop, or in C code that holds the GIL.

    A worker of xdist is then replaced and its test reported as crashed.
    """
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(settings.timeout + GRACE, exit=True, file=stderr)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """h5pyd, opening a domain, sets the level of the root logger: kept from tests that look for a warning."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture(scope="session")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with its data node in the same process. Tests share it; each has domains of its own."""
    with server_process("--root", str(tmp_path_factory.mktemp("root")), "--no-fsync") as server:
        yield server.url
        assert server.stop() == 0


@pytest.fixture(scope="session")
def two_nodes_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with two data nodes, shared as the embedded one is."""
    with server_process("--root", str(tmp_path_factory.mktemp("root")), "--no-fsync", "--dn", "2") as server:
        yield server.url
        assert server.stop() == 0


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """The URL of a loopback S3 server that takes any credentials."""
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azurite_endpoint() -> Iterator[str]:
    """The URL of the account of a loopback Azurite."""
    with azurite_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def google() -> Iterator[GoogleServer]:
    """A loopback Google Storage that takes any credentials."""
    with google_server() as server:
        yield server


@pytest.fixture
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    """A function that returns a fresh empty store, closed for the test: "memory", "posix", "s3", "azure", "google"."""
    async with AsyncExitStack() as stores:

        async def make(kind: str, page_size: int = 1000) -> ObjectStore:
            number = next(NUMBERS)
            store: ObjectStore
            if kind == "memory":
                store = MemoryStore(page_size=page_size)
            elif kind == "posix":
                store = PosixStore(tmp_path / f"store-{number}", fsync=False, page_size=page_size)
            elif kind == "s3":
                endpoint = request.getfixturevalue("moto_endpoint")
                make_bucket(endpoint, f"bucket-{number}")
                store = await S3Store(
                    f"bucket-{number}",
                    endpoint=endpoint,
                    region="us-east-1",
                    access_key="test",
                    secret_key="test",
                    page_size=page_size,
                ).open()
            elif kind == "azure":
                endpoint = request.getfixturevalue("azurite_endpoint")
                make_container(endpoint, f"bucket-{number}")
                url, config = f"az://bucket-{number}", azure_config(endpoint)
                store = await ObstoreStore(url, config=config, page_size=page_size).open()
            elif kind == "google":
                server = request.getfixturevalue("google")
                server.make_bucket(f"bucket-{number}")
                url, config = f"gs://bucket-{number}", google_config(server.url)
                store = await ObstoreStore(url, config=config, page_size=page_size).open()
            else:
                raise ValueError(f"no store of kind {kind!r}")
            stores.push_async_callback(store.close)
            return store

        yield make
