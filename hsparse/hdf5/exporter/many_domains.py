"""Export several domains to a directory: all domains that a pattern matches, or all below a folder."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hsparse.cli.file_arguments import SCHEME
from hsparse.cli.run_each import run_each
from hsparse.cli.tree.server_tree import PATTERN, Kind, ServerTree, TreeEntry, require_place
from hsparse.client.connection import Connection
from hsparse.errors import BadRequest


def is_for_folder(args: argparse.Namespace) -> bool:
    """Return whether the source is a pattern of domains or the target is a directory."""
    return bool(PATTERN.search(args.domain)) or args.file.endswith("/") or Path(args.file).is_dir()


def export_each(
    args: argparse.Namespace,
    connect: Callable[[str | None], Connection],
    run: Callable[[argparse.Namespace], int],
) -> int:
    """Export each domain to a file in the directory or prefix `args.file`, with its subfolders; return the status."""
    place = args.file.rstrip("/")
    if not args.file.startswith(SCHEME) and Path(place).is_file():
        raise BadRequest(f"{place} is a file: name a directory for several domains.")
    with closing(ServerTree(connect)) as tree:

        def run_domain(domain: ExportedDomain) -> int:
            file = f"{place}/{domain.name}"
            if not args.file.startswith(SCHEME):
                Path(file).parent.mkdir(parents=True, exist_ok=True)
            return run(argparse.Namespace(**vars(args) | {"domain": domain.path, "file": file}))

        found = (one for entry in tree.expand(args.domain) for one in _domains(tree, require_place(entry)))
        return run_each(found, run_domain, args.progress, f"domains are exported to {args.file}.")


@dataclass(frozen=True, slots=True)
class ExportedDomain:
    """The path of a domain, and the name of its file relative to the target directory."""

    path: str
    name: str

    def __str__(self) -> str:
        return self.path


def _domains(tree: ServerTree, entry: TreeEntry, above: str = "") -> Iterator[ExportedDomain]:
    name = f"{above}{entry.name}"
    if entry.kind is not Kind.FOLDER:
        yield ExportedDomain(entry.path, name)
        return
    for member in tree.members(entry):
        yield from _domains(tree, member, f"{name}/")
