"""`hsparse mv`: moves domains and folders.

A domain moves without copying: a domain with the same root group is created at the new path, then the old domain is
deleted without its objects. The objects therefore always belong to a domain.
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
    """Move each source to its new path."""
    Mover(tree, output).move(list(pairs(args, tree)))


class Mover:
    """Moves domains and folders with the rights of the tree's credential."""

    def __init__(self, tree: ServerTree, output: Output) -> None:
        self._tree = tree
        self._output = output
        self._is_admin = bool(tree.json("GET", "/about").get("isadmin"))

    def move(self, pairs: list[tuple[TreeEntry, str]]) -> None:
        """Move domains, and folders with everything in them, to new paths; raise `Conflict` if a path exists."""
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
                f"{error.message} What was not moved is in {entry.path}; go on by hsparse mv '{entry.path}/*' {path}"
            ) from error
        remove(self._tree, entry)
        self._output.report("removed", entry.display_path)

    def _move_domain(self, pair: tuple[TreeEntry, str]) -> tuple[str, str]:
        """Move one domain; return its old path and its new one."""
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
                f"{path} was replaced while {entry.path} was moved there; {entry.path} is as it was."
            )
        try:
            self._tree.delete_name(entry.path, path)
        except NotFound as error:
            raise Conflict(
                f"{entry.path} was deleted or moved by someone else meanwhile; see what {path} is before using it."
            ) from error
        return entry.path, path

    def _owner(self, entry: TreeEntry) -> str | None:
        """Return the owner to name in the request, or None for the caller: only an admin can name another user."""
        return entry.record.get("owner") if self._is_admin else None

    def _copy_acls(self, source: str, target: str) -> None:
        """Add the entries of the source's ACL to the target, which keeps entries inherited from its folder."""
        for acl in self._tree.json("GET", "/acls", source)["acls"]:
            user = acl["userName"]
            # An ACL record also has the user and the domain in which it was set.
            rights = {name: right for name, right in acl.items() if isinstance(right, bool)}
            self._tree.put(f"/acls/{user}", rights, target)
