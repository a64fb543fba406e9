"""HSDS: one service node and two data nodes over a directory, in an environment of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.child import Child, free_port
from benchmarks.environment import Environment
from benchmarks.peers.server import Server

VERSION = "1.0.2"
DATA_NODES = 2
USER, PASSWORD = "bench", "bench"
BUCKET = "hsdstest"


def environment(bench: Path, version: str = VERSION) -> Environment:
    """Return HSDS's environment; `setuptools` because HSDS imports `pkg_resources`."""
    folder = "hsds" if version == VERSION else f"hsds-{version}"
    return Environment(bench / folder, (f"hsds=={version}", "setuptools<81"))


@asynccontextmanager
async def serve(bench: Path, work: Path) -> AsyncIterator[Server]:
    """Run the nodes over an empty directory in `work` during the context."""
    store = work / "hsds"
    (store / BUCKET).mkdir(parents=True)
    async with serve_nodes(environment(bench), work, [f"--root_dir={store}"]) as server:
        server.store = store
        yield server


@asynccontextmanager
async def serve_nodes(
    environment: Environment,
    work: Path,
    arguments: Sequence[str],
    bucket: str = BUCKET,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Server]:
    """Run the nodes as HSDS's own launcher does, but on free ports, during the context.

    `arguments` name the bucket; logs go to `work`. Only errors are logged, in HSDS's favour.
    """
    nodes = sorted(f"http://127.0.0.1:{free_port()}" for _ in range(DATA_NODES))
    base = f"http://127.0.0.1:{free_port()}"
    common = [
        "--standalone",
        f"--dn_urls={','.join(nodes)}",
        f"--hsds_endpoint={base}",
        f"--bucket_name={bucket}",
        "--log_level=ERROR",
        "--password_file=",
        *arguments,
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
    python = environment.python
    server = Server("HSDS", base, durable=False, children=[], auth=(USER, PASSWORD))
    try:
        for role, options in roles:
            argv: list[str | Path] = [python, python.parent / "hsds-node", *options, *common]
            server.children.append(await Child.start(argv, work / f"hsds-{role}.log", env))
        for url in (*nodes, base):  # the service node is ready before its data nodes, and answers 500 or 503
            await Server("HSDS", url, durable=False, children=server.children).wait_ready()
        yield server
    finally:
        await server.stop()
