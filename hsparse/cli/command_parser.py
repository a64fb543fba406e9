"""The parser of a command; its error for an unknown flag shows the usage of the command and the closest flag."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hsparse.extension import Command

FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
GROUPS = {
    "servers": ("serve", "sn", "dn", "nodes", "sweep"),
    "users and rights": ("user", "key", "acl", "quota"),
    "folders and domains": ("ls", "info", "mkdir", "cp", "mv", "rm", "du"),
    "files": ("import", "export", "concat", "map", "job"),
    "the past of domains": ("snapshot", "log", "diff", "restore", "clone"),
}
"""Maps the title of each group in the help to its commands; all other commands follow in the group "others"."""


class CommandParser(argparse.ArgumentParser):
    """The parser of a command or subcommand; the help of `hsparse` lists its `commands` in groups."""

    commands: Mapping[str, Command] = {}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; the error for unknown arguments shows the usage of this parser instead of its parent's."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flags = FLAG.findall(self.format_usage())
            meant = did_you_mean((one.partition("=")[0] for one in unknown if one.startswith("-")), flags)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return parsed, unknown

    def format_help(self) -> str:
        """Return the text of the help; a parser with `commands` lists the commands in groups."""
        if not self.commands:
            return super().format_help()
        formatter = argparse.HelpFormatter(self.prog)
        formatter.add_text(self.description)
        for title, names in _grouped(self.commands).items():
            formatter.start_section(title)
            formatter.add_arguments([_HelpLine([], name, help=self.commands[name].help) for name in names])
            formatter.end_section()
        formatter.add_text(self.epilog)
        usage = f"usage: {self.prog} [--help] [--version] COMMAND ...\n\n"
        return usage + formatter.format_help()


class _HelpLine(argparse.Action):
    """A line of the help, which parses nothing."""

    def __call__(self, *given: Any) -> None:
        raise AssertionError("it is in no parser")


def did_you_mean(given: Iterable[str], known: Iterable[str]) -> str:
    """Return a question that names the closest `known` name of each given name, or "" if no known name is close."""
    names = list(known)
    near = [match for one in given for match in difflib.get_close_matches(one, names, 1)]
    return f"; did you mean {' '.join(dict.fromkeys(near))}?" if near else ""


def _grouped(commands: Mapping[str, Command]) -> dict[str, list[str]]:
    grouped = {title: [name for name in names if name in commands] for title, names in GROUPS.items()}
    listed = {name for names in grouped.values() for name in names}
    rest = {"others": [name for name in commands if name not in listed]}
    return {title: names for title, names in (grouped | rest).items() if names}
