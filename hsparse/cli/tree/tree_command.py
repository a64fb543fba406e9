"""Common code of the commands on the tree of a server: flags, output lines, and exit status.

`pairs` resolves the sources and targets of `hsparse cp` and `hsparse mv`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

from hsparse.cli.connection_flags import add_server_flags, domain_connector
from hsparse.cli.progress import interruptible
from hsparse.cli.terminal_text import terminal_text
from hsparse.cli.tree.server_tree import PATTERN, Kind, ServerTree, TreeEntry, normal_path, require_place
from hsparse.client.connection import Json
from hsparse.errors import BadRequest, Conflict

INTERRUPTED = 130
WARNED = 1
"""The exit status of a command that skipped some entries and warned about each of these entries."""
PATTERN_HELP = "`*`, `?` and `[a-z]` match names; quote them, or the shell looks for files"


class Output:
    """Prints lines to standard output, each at once: text for users or, with `is_json`, JSON objects for programs."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json
        self.has_warned = False

    def write(self, text: str, item: Json) -> None:
        """Print one line: `item` as JSON if `is_json` is set, or else `text`."""
        print(json.dumps(item) if self.is_json else terminal_text(text, sys.stdout), flush=True)

    def warn(self, text: str) -> None:
        """Print a warning to standard error; the command will end with the status `WARNED`."""
        self.has_warned = True
        print(f"hsparse: {terminal_text(text, sys.stderr)}", file=sys.stderr, flush=True)

    def report(self, action: str, path: str, **more: str) -> None:
        """Print a line about an action: `removed /home/ann/old.h5`, or `{"action": "removed", "path": ...}`."""
        tail = "".join(f" {name} {value}" for name, value in more.items())
        self.write(f"{action} {path}{tail}", {"action": action, "path": path, **more})


Action: TypeAlias = Callable[[argparse.Namespace, ServerTree, Output], None]


def add_tree_arguments(
    parser: argparse.ArgumentParser, about: str, action: Action, *, piped: bool = False
) -> None:
    """Add the common arguments and the description `about`, and set `run` to a function that calls `action`.

    `piped` adds the flag `--piped`, for commands that servers start as jobs.
    """
    parser.description = about
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print a JSON object on each line, for programs")
    add_server_flags(parser, piped=piped)
    parser.set_defaults(run=run, action=action)


def run(args: argparse.Namespace) -> int:
    """Run the action of a command and return the exit status; an error of the action is raised."""
    tree, output = ServerTree(domain_connector(args)), Output(is_json=args.json)
    try:
        with interruptible():
            args.action(args, tree, output)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has enough; Python would report the unwritten rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        tree.close()
    return WARNED if output.has_warned else 0


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments SOURCE and TARGET and the flag `--exact`, for commands that move or copy."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a domain or a folder")
    parser.add_argument("target", metavar="TARGET", help="the new path, or an existing folder to put it in")
    parser.add_argument(
        "--exact",
        action="store_true",
        help="take SOURCE as a path, not a pattern, and TARGET as the new path, not a folder to put it in",
    )


def pairs(args: argparse.Namespace, tree: ServerTree) -> Iterator[tuple[TreeEntry, str]]:
    """Yield a pair for each source: its entry and its new path, which is the target or is in the target folder.

    All sources are looked up before the first is yielded. Raises `BadRequest` if a folder would move into itself, or if
    there are several sources but the target is not a folder.
    """
    find = (lambda text: (tree.find(text),)) if args.exact else tree.expand
    entries = [require_place(entry) for text in args.sources for entry in find(text)]
    target = normal_path(args.target)
    folder = None if args.exact else tree.exists(target)
    into = folder is not None and folder.kind is Kind.FOLDER
    several = len(args.sources) > 1 or (not args.exact and any(map(PATTERN.search, args.sources)))
    if not into and (several or args.target.endswith("/")):
        raise BadRequest(
            f"The target {target} is not a folder; create the folder first: hsparse mkdir -p {target}"
        )
    for entry in entries:
        path = f"{target.rstrip('/')}/{entry.name}" if into else target
        if f"{path}/".startswith(f"{entry.path.rstrip('/')}/"):
            raise BadRequest(f"{entry.path} cannot go into itself, to {path}: name another target.")
        yield entry, path


def require_free(tree: ServerTree, path: str) -> None:
    """Raise `Conflict` if the path has a domain or a folder."""
    if tree.exists(path) is not None:
        raise Conflict(f"{path} exists already: choose another name, or delete {path} by hsparse rm {path}")
