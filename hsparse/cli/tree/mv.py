"""`hsparse mv`: moves domains and folders.

Moving a domain copies no data: the command creates a domain with the same root group at the new path, and then deletes
the old domain but not its objects. The objects therefore belong to a domain at any time.
"""

from __future__ import annotations

import argparse

from hsparse.cli.tree.mkdir import make_folder
from hsparse.cli.tree.rm import remove
from hsparse.cli.tree.server_tree import Kind, ServerTree, TreeEntry
from hsparse.cli.tree.tree_command import (
    PATTERN_HELP,
    Output,
    add_target_arguments,
    add_tree_arguments,
    pairs,
    require_free,
)
from hsparse.errors import Conflict, HsparseError, NotFound

ABOUT = f"""\
Move domains and folders, with their access control lists. Nothing is copied, whatever the size.

  hsparse mv /home/ann/run1.h5 /home/ann/first.h5
  hsparse mv '/home/ann/run*.h5' /home/ann/runs

A move needs all rights on the domain or folder. If a move is interrupted, nothing is lost, but a domain may have both
names: run the same command again, and do not use rm on either name, because it deletes the objects. If an admin moves,
the owner stays; otherwise the user who moves becomes the owner. In a path, {PATTERN_HELP}.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `mv`, and set `run` in the parsed arguments."""
    add_target_arguments(parser)
    add_tree_arguments(parser, ABOUT, move_paths)


def move_paths(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Move each source that the arguments name to its new path."""
    Mover(tree, output).move(list(pairs(args, tree)))


class Mover:
    """Moves domains and folders with the rights of the user that the tree's credential names."""

    def __init__(self, tree: ServerTree, output: Output) -> None:
        self._tree = tree
        self._output = output
        self._is_admin = bool(tree.json("GET", "/about").get("isadmin"))

    def move(self, pairs: list[tuple[TreeEntry, str]]) -> None:
        """Move domains, and folders with all their content, to new paths; raise `Conflict` if a new path exists."""
        domains = [pair for pair in pairs if pair[0].kind is not Kind.FOLDER]
        for source, path in self._tree.each(domains, self._move_domain):
            self._output.report("moved", source, to=path)
        for entry, path in pairs:
            if entry.kind is Kind.FOLDER:
                self._move_folder(entry, path)

    def _move_folder(self, entry: TreeEntry, path: str) -> None:
        require_free(self._tree, path)
        make_folder(self._tree, self._output, path, self._owner(entry))
        try:
            self._copy_acls(entry.path, path)
            self.move([(member, f"{path}/{member.name}") for member in self._tree.members(entry)])
        except HsparseError as error:
            raise type(error)(
                f"{error.message} The rest is still in {entry.path}; move it by hsparse mv '{entry.path}/*' {path}"
            ) from error
        remove(self._tree, entry)
        self._output.report("removed", entry.display_path)

    def _move_domain(self, pair: tuple[TreeEntry, str]) -> tuple[str, str]:
        """Move one domain; return a pair: the old path and the new path."""
        entry, path = pair
        root = self._tree.root(entry)
        found = self._tree.exists(path)
        if found is None or found.record.get("root") != root:  # else an earlier move was interrupted
            require_free(self._tree, path)
            owner = self._owner(entry)
            self._tree.create(
                path, {"linked_domain": entry.path} | ({} if owner is None else {"owner": owner})
            )
        self._copy_acls(entry.path, path)
        if self._tree.json("GET", "/", path).get("root") != root:
            raise Conflict(
                f"Another user replaced {path} during the move, so {entry.path} was not moved: move it again."
            )
        try:
            self._tree.delete_name(entry.path, path)
        except NotFound as error:
            raise Conflict(
                f"Another user deleted or moved {entry.path} during the move; check {path} before you use it."
            ) from error
        return entry.path, path

    def _owner(self, entry: TreeEntry) -> str | None:
        """Return the owner of the new entry, or None for the user who moves: only an admin can name another owner."""
        return entry.record.get("owner") if self._is_admin else None

    def _copy_acls(self, source: str, target: str) -> None:
        """Add the entries of the ACL of the source to the target; the target keeps the entries that it inherited."""
        for acl in self._tree.json("GET", "/acls", source)["acls"]:
            user = acl["userName"]
            # An ACL record also has the user and the domain in which it was set.
            rights = {name: right for name, right in acl.items() if isinstance(right, bool)}
            self._tree.put(f"/acls/{user}", rights, target)
