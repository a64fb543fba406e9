"""What the commands about the tree of a server have in common: flags, the tree, lines of output, and an end."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import TypeAlias

from hsparse.cli.connection_flags import add_server_flags, domain_connector
from hsparse.cli.progress import interruptible
from hsparse.cli.terminal_text import terminal_text
from hsparse.cli.tree.server_tree import ServerTree
from hsparse.client.connection import Json

INTERRUPTED = 130
PATTERN_HELP = "`*`, `?` and `[a-z]` match names; quote them, or the shell looks for files"


class Output:
    """Lines on standard output, flushed one by one: text for people, or with `is_json` an object for programs."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json

    def write(self, text: str, item: Json) -> None:
        """Write one line."""
        print(json.dumps(item) if self.is_json else terminal_text(text, sys.stdout), flush=True)

    def warn(self, text: str) -> None:
        """Write a sentence to standard error."""
        print(f"hsparse: {terminal_text(text, sys.stderr)}", file=sys.stderr, flush=True)

    def report(self, action: str, path: str, **more: str) -> None:
        """Write what was done: `removed /home/ann/old.h5`, or `{"action": "removed", "path": ...}`."""
        tail = "".join(f" {name} {value}" for name, value in more.items())
        self.write(f"{action} {path}{tail}", {"action": action, "path": path, **more})


Action: TypeAlias = Callable[[argparse.Namespace, ServerTree, Output], None]


def add_tree_arguments(parser: argparse.ArgumentParser, about: str, action: Action) -> None:
    """Add what all these commands have; the parsed arguments have `run`."""
    parser.description = about
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print a JSON object on each line, for programs")
    add_server_flags(parser)
    parser.set_defaults(run=run, action=action)


def run(args: argparse.Namespace) -> int:
    """Run the command; raise the error that stops it."""
    tree = ServerTree(domain_connector(args))
    try:
        with interruptible():
            args.action(args, tree, Output(is_json=args.json))
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads has enough, as `head`; Python would complain of the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        tree.close()
    return 0
