"""The demo: uses of sparse datasets, shown with real data; every answer is checked.

`python -m demo` starts a server, imports single-cell expression data and streams detector frames into sparse datasets
over HTTP, and checks every answer against scipy and numpy. It takes about 20 seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from demo.cells import Cells, load_cells
from demo.frames import Frames
from demo.story import StoredSize, Story, report
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.clock import SystemClock
from hsparse.config import Settings, load_settings
from hsparse.errors import HsparseError, Misconfigured

CELLS_DOMAIN = "/pbmc68k_reduced.h5ad"
DETECTOR_DOMAIN = "/detector.h5"


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 1 when an answer is wrong or missing, 2 when it cannot start."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Start a server, load single-cell expression data and a stream of detector frames into "
        "sparse datasets over HTTP, and check every answer against scipy and numpy. Needs about 20 seconds; "
        "exits with 1 when an answer is wrong.",
    )
    parser.add_argument(
        "--frames", type=at_least(2), default=48, metavar="N", help="detector frames to stream (default: 48)"
    )
    parser.add_argument(
        "--every", type=at_least(1), default=12, metavar="N", help="keep every N-th in full (default: 12)"
    )
    store = parser.add_mutually_exclusive_group()
    store.add_argument(
        "--keep", metavar="DIR", help="keep what the server stores in DIR, for `hsparse serve --root DIR`"
    )
    store.add_argument(
        "--bucket", metavar="NAME", help="store everything in an empty S3 bucket, and leave it there"
    )
    parser.add_argument("--s3-endpoint", metavar="URL", help="the bucket's server, when it is not AWS")
    args = parser.parse_args(arguments)
    story = Story(Console(highlight=False))
    try:
        if args.bucket is not None:
            tell(story, settings_for_bucket(args.bucket, args.s3_endpoint), args.frames, args.every)
        else:
            with directory(args.keep) as root:
                tell(story, settings_for(root), args.frames, args.every)
    except Misconfigured as error:
        print(f"demo: {error.message}", file=sys.stderr)
        return 2
    except HsparseError as error:
        story.wrong(error)
        return 1
    except KeyboardInterrupt:
        story.say("Stopped.")
        return 130
    if args.keep is not None:
        story.say(f"Look around: hsparse serve --root {args.keep}")
    return 0


def tell(story: Story, settings: Settings, frames: int, every: int) -> None:
    """Load, query and change both data sets, then restart the server and read them again."""
    clock = SystemClock()
    started = clock.monotonic()
    root, buckets = settings.store.root, settings.store.bucket
    place = f"as files in {root}" if root is not None else f"in the bucket {buckets[0]}"
    story.chapter("A server")
    with embedded_server(settings) as url:
        story.say(
            f"hsparse listens on {url} and keeps HDF5 objects {place}. All below goes over HTTP, and every "
            "write is stored before it is answered."
        )
        with Connection(url, CELLS_DOMAIN) as cells_connection, Connection(url, DETECTOR_DOMAIN) as detector:
            cells, lines = _cells(cells_connection, story)
            stream, more = _frames(detector, frames, every, story)
    story.chapter("The same after a restart")
    story.say(
        "The server is stopped, and another one started on the same store. What was acknowledged is there:"
    )
    with embedded_server(settings) as url:
        with Connection(url, CELLS_DOMAIN) as connection:
            cells.check_again(connection)
        with Connection(url, DETECTOR_DOMAIN) as connection:
            stream.check_again(connection)
    story.console.print("", report([*lines, *more]))
    seconds = clock.monotonic() - started
    story.say(
        f"[green]{story.checks} answers checked against scipy and numpy, all right[/], in {seconds:.1f} seconds."
    )


def _cells(connection: Connection, story: Story) -> tuple[Cells, list[StoredSize]]:
    story.chapter("Single cells: a sparse matrix that HDF5 understands")
    cells, lines = load_cells(connection, CELLS_DOMAIN, story)
    cells.question()
    cells.change()
    return cells, lines


def _frames(connection: Connection, count: int, every: int, story: Story) -> tuple[Frames, list[StoredSize]]:
    story.chapter("A detector: a stream of which little is worth keeping")
    story.say(
        "An X-ray detector sends images of 1 megapixel. Of each only a region of interest (about 10 %) or a list of "
        f"some hundred pixels is worth keeping, and one image in {every} in full, to see that nothing is missed. "
        "Two datasets, frames x 1024 x 1024 and unlimited, keep both in their places."
    )
    connection.json("PUT", "/", {})
    frames = Frames(connection, count, every, story)
    frames.stream()
    lines = frames.stored()
    frames.question()
    frames.change()
    return frames, lines


def settings_for(root: Path) -> Settings:
    """Return the settings of a server over `root` on this machine's loopback, ignoring the environment's store."""
    settings = load_settings(root=root, host="127.0.0.1", port=0, user="admin")
    return replace(
        settings,
        store=replace(settings.store, bucket=(), single_writer=False),
        sign_in=replace(settings.sign_in, password_file=None),
    )


def settings_for_bucket(bucket: str, endpoint: str | None) -> Settings:
    """Return the settings of a server over a bucket, with credentials from botocore's own chain."""
    settings = load_settings(bucket=(bucket,), host="127.0.0.1", port=0, user="admin", s3_endpoint=endpoint)
    return replace(
        settings,
        store=replace(settings.store, root=None, single_writer=False),
        sign_in=replace(settings.sign_in, password_file=None),
    )


@contextmanager
def directory(keep: str | None) -> Iterator[Path]:
    """Yield a directory for the server: a new one that is removed at the end, or the empty directory `keep`."""
    if keep is None:
        with TemporaryDirectory(prefix="hsparse-demo-") as path:
            yield Path(path)
        return
    root = Path(keep).resolve()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise Misconfigured(f"--keep {keep} is not an empty directory; name one that is, or a new one.")
    yield root


def at_least(minimum: int) -> Callable[[str], int]:
    """Return the argparse type of an integer that is at least `minimum`."""

    def number(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is less than {minimum}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
