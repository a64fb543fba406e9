"""`hsparse completion`: prints the script with which a shell completes commands, flags, choices and files.

At a press of the Tab key, the shell runs this script and not Python. shtab generates the script from the parsers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hsparse.optional_module import OptionalModule

SHTAB = OptionalModule("shtab", "completion")
SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "OUT")
"""The placeholders in the help (metavars) of arguments that name a local file."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the argument that names the shell, and set `run` in the parsed arguments."""
    parser.description = (
        "Print a script of completions, for ~/.local/share/bash-completion/completions/hsparse, for a file _hsparse in "
        "a directory of zsh's fpath, or for ~/.config/fish/completions/hsparse.fish."
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the completion script of the shell; return 0."""
    shtab = SHTAB.load()
    parser = args.make_whole_parser()
    _mark_files(parser, shtab.FILE)
    print(shtab.complete(parser, args.shell))
    return 0


def _mark_files(parser: argparse.ArgumentParser, mark: object) -> None:
    """Mark the arguments that name files with `mark`, so that the shell completes file names for these arguments."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _mark_files(below, mark)
        elif action.type is Path or action.metavar in FILES:
            action.complete = mark  # type: ignore[attr-defined]
