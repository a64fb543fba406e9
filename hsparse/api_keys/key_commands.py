"""The implementation of `hsparse key` on a key file; needs the server's packages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hsparse.api import BadRequest, Clock, HsparseError, PasswordFile, SystemClock
from hsparse.api_keys.api_key import ApiKey, KeyFile, Role, new_key, written_time

DAY = 24 * 60 * 60
MAX_DAYS = 36500


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Run the command; return 0, or print an error to standard error and return 2."""
    clock = clock or SystemClock()
    file = KeyFile(Path(args.key_file))
    try:
        if args.key_command == "add":
            _add(file, args, clock)
        elif args.key_command == "revoke":
            _revoke(file, args, clock)
        else:
            _list(file, clock)
    except HsparseError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


def _add(file: KeyFile, args: argparse.Namespace, clock: Clock) -> None:
    if not 0 <= args.days <= MAX_DAYS:
        raise BadRequest(f"--days is {args.days}, but must be from 0 (never expires) to {MAX_DAYS}.")
    expires = int(clock.now()) + args.days * DAY if args.days else None
    groups = tuple(dict.fromkeys(args.group))
    text, key = new_key(clock, args.name, args.of, _role(args), groups, expires)
    file.add(key)
    until = f"until {written_time(expires)}" if expires is not None else "until it is revoked"
    print(text)
    print(f"Added key {key.name} of {key.user}, valid {until}. It is not shown again.", file=sys.stderr)


def _role(args: argparse.Namespace) -> Role:
    if args.password_file is None or args.service:
        return Role.ADMIN if args.admin else Role.USER
    if args.admin or args.group:
        raise BadRequest(
            "With --password-file, a key has the role and groups of its user: change these by 'hsparse user role', or "
            "add --service to give the key its own role and groups."
        )
    if args.of not in PasswordFile(Path(args.password_file)).entries():
        raise BadRequest(
            f"There is no user {args.of!r} in {args.password_file}; add the user first, or add --service to give "
            "the key its own role and groups."
        )
    return Role.ACCOUNT


def _revoke(file: KeyFile, args: argparse.Namespace, clock: Clock) -> None:
    if sum((args.name is not None, args.of is not None, args.expired)) != 1:
        raise BadRequest("Name the keys to revoke by exactly one of NAME, --of USER and --expired.")

    def picks(key: ApiKey) -> bool:
        if args.expired:
            return _has_expired(key, clock)
        return key.user == args.of if args.of is not None else args.name in (key.name, key.id)

    for key in file.revoke(picks):
        print(f"Revoked key {key.name} ({key.id}) of {key.user}.")


def _list(file: KeyFile, clock: Clock) -> None:
    rows = [("id", "name", "user", "role", "groups", "created", "expires")]
    for key in sorted(file.entries().values(), key=lambda key: (key.user, key.name)):
        times = [written_time(key.created), written_time(key.expires)]
        expired = " (expired)" if _has_expired(key, clock) else ""
        groups = ",".join(key.groups) or "-"
        rows.append((key.id, key.name, key.user, key.role.value, groups, times[0], times[1] + expired))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _has_expired(key: ApiKey, clock: Clock) -> bool:
    return key.expires is not None and clock.now() >= key.expires
