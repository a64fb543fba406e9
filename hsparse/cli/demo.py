"""`hsparse demo`: the arguments. What it does is in `demo_run`, which needs the extra `hsparse[demo]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec

from hsparse.errors import Misconfigured

NEEDED = ("h5py", "scipy")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `demo`; the parsed arguments carry `run`."""
    parser = subparsers.add_parser(
        "demo",
        help="load real data into an embedded server and check what comes back",
        description="Start a server, load single-cell expression data and a stream of detector frames into "
        "sparse datasets over HTTP, and check every answer against scipy and numpy. Needs about 20 seconds; "
        "exits with 1 when an answer is wrong.",
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's flags."""
    parser.add_argument(
        "--frames", type=at_least(2), default=48, metavar="N", help="detector frames to stream (default: 48)"
    )
    parser.add_argument(
        "--every", type=at_least(1), default=12, metavar="N", help="keep every N-th in full (default: 12)"
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="keep what the server stores in DIR, for `hsparse serve --root DIR`"
    )


def at_least(minimum: int) -> Callable[[str], int]:
    """Return the type of a flag: a number that is `minimum` or more."""

    def number(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is less than {minimum}")
        return value

    return number


def run(args: argparse.Namespace) -> int:
    """Run the demo in a process of its own, so that no other command loads what it needs."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise Misconfigured(
            f"The demo needs {' and '.join(missing)}, not installed here: pip install 'hsparse[demo]'"
        )
    command = [
        sys.executable,
        "-m",
        "hsparse.cli.demo_run",
        f"--frames={args.frames}",
        f"--every={args.every}",
    ]
    if args.keep is not None:
        command.append(f"--keep={args.keep}")
    with subprocess.Popen(command) as process:  # noqa: S603 - this interpreter, and numbers
        try:
            return process.wait()
        except KeyboardInterrupt:  # the terminal told it too
            return process.wait()
