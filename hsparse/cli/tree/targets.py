"""Where `hsparse cp` and `hsparse mv` put what they copy or move."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from hsparse.cli.tree.server_tree import PATTERN, Entry, Kind, ServerTree, normal_path, require_place
from hsparse.errors import BadRequest, Conflict


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for sources and the target."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a domain or a folder")
    parser.add_argument("target", metavar="TARGET", help="the new path, or an existing folder to put it in")


def pairs(args: argparse.Namespace, tree: ServerTree) -> Iterator[tuple[Entry, str]]:
    """Yield each source and its new path: in the target if that is a folder, else the target itself.

    All sources are found first. `BadRequest` for a folder that would get into itself, and for several sources
    without a folder to put them in.
    """
    entries = [require_place(entry) for text in args.sources for entry in tree.expand(text)]
    target = normal_path(args.target)
    folder = tree.exists(target)
    into = folder is not None and folder.kind is Kind.FOLDER
    several = len(args.sources) > 1 or any(map(PATTERN.search, args.sources))
    if not into and (several or args.target.endswith("/")):
        raise BadRequest(
            f"There is no folder {target} to put these in; create it first: hsparse mkdir {target}"
        )
    for entry in entries:
        path = f"{target.rstrip('/')}/{entry.name}" if into else target
        if f"{path}/".startswith(f"{entry.path.rstrip('/')}/"):
            raise BadRequest(f"{entry.path} cannot get into itself: {path} is not another place.")
        yield entry, path


def require_free(tree: ServerTree, path: str) -> None:
    """Raise `Conflict` if there is a domain or a folder."""
    if tree.exists(path) is not None:
        raise Conflict(f"{path} exists already; choose another name, or delete it first: hsparse rm {path}")
