"""HSDS: one service node and two data nodes over a directory, in an environment of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.child import Child, free_port
from benchmarks.environment import Environment
from benchmarks.peers.server import Server

VERSION = "1.0.2"
DATA_NODES = 2
USER, PASSWORD = "bench", "bench"


def environment(bench: Path) -> Environment:
    """Return HSDS's environment; `setuptools` because HSDS imports `pkg_resources`."""
    return Environment(bench / "hsds", (f"hsds=={VERSION}", "setuptools<81"))


@asynccontextmanager
async def serve(bench: Path, work: Path) -> AsyncIterator[Server]:
    """Start the nodes as HSDS's own launcher does, but on free ports; stop them at the end.

    Logging is turned down to errors, in HSDS's favour.
    """
    python = environment(bench).python
    store = work / "hsds"
    (store / "hsdstest").mkdir(parents=True)
    nodes = sorted(f"http://127.0.0.1:{free_port()}" for _ in range(DATA_NODES))
    base = f"http://127.0.0.1:{free_port()}"
    common = [
        "--standalone",
        f"--dn_urls={','.join(nodes)}",
        f"--hsds_endpoint={base}",
        f"--root_dir={store}",
        "--bucket_name=hsdstest",
        "--log_level=ERROR",
        "--password_file=",
    ]
    service = [
        f"--hs_username={USER}",
        f"--hs_password={PASSWORD}",
        f"--admin_user={USER}",
        f"--sn_url={base}",
    ]
    roles = [("sn", ["--node_type=sn", "--log_prefix=sn ", *service])]
    roles += [
        (f"dn{i}", ["--node_type=dn", f"--log_prefix=dn{i} ", f"--node_number={i}"])
        for i in range(DATA_NODES)
    ]
    server = Server("HSDS", base, durable=False, children=[], store=store, auth=(USER, PASSWORD))
    try:
        for role, arguments in roles:
            argv: list[str | Path] = [python, python.parent / "hsds-node", *arguments, *common]
            server.children.append(await Child.start(argv, work / f"hsds-{role}.log"))
        await server.wait_ready()
        yield server
    finally:
        await server.stop()
