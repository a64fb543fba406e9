"""`hsparse sweep`: removes objects that no domain reaches from a store; servers may run at the same time."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable

from hsparse.cli.data_node import extended
from hsparse.cli.node_process import add_setting_flags, settings_of
from hsparse.cli.progress import add_progress_flag, print_message, reports_failure, show_progress
from hsparse.cli.stores import joined_stores, opened_stores
from hsparse.clock import SystemClock
from hsparse.config import Settings
from hsparse.dn.membership.ownership import NoOwnership
from hsparse.dn.sweep import MIN_AGE, Finding, Sweep
from hsparse.errors import BadRequest
from hsparse.setting import declared_settings
from hsparse.storage.store_settings import StoreSettings

HOUR = 3600.0


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of `sweep`, and set `run` in the parsed arguments."""
    parser.description = (
        "Finish interrupted deletions, and remove objects that crashes have left without a domain. Servers may run "
        "meanwhile, but not with --single-writer."
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    parser.add_argument(
        "--min-age",
        type=float,
        default=MIN_AGE / HOUR,
        metavar="HOURS",
        help=f"keep younger objects, which may be under creation (default: {MIN_AGE / HOUR:g})",
    )
    add_progress_flag(parser)
    add_setting_flags(parser, *declared_settings(StoreSettings))
    parser.set_defaults(run=reports_failure(run))


def run(args: argparse.Namespace) -> int:
    """Sweep every configured store, and print each finding and the totals; return 0."""
    if not args.min_age >= 0:
        raise BadRequest(f"--min-age is {args.min_age:g}, but must be a number of hours, 0 or more.")
    with show_progress(args.progress, "sweep") as display:
        found = asyncio.run(_sweep(settings_of(args), args, display.advance))
    for store, finding in found:
        print_message(args.progress, f"{store}: {describe(finding)}")
    objects = sum(finding.objects for _, finding in found)
    nbytes = sum(finding.nbytes for _, finding in found)
    verb = "would be removed" if args.dry_run else "removed"
    print_message(args.progress, f"{len(found)} found; {objects} objects, {nbytes} bytes {verb}")
    return 0


async def _sweep(
    settings: Settings, args: argparse.Namespace, advance: Callable[[int], None]
) -> list[tuple[str, Finding]]:
    found: list[tuple[str, Finding]] = []
    async with opened_stores(settings.store, put_log=settings.store.put_log, there=True) as stores:
        for number, store in enumerate(joined_stores(stores)):
            sweep = Sweep(
                extended(settings, store, NoOwnership(), number)[0],
                SystemClock(),
                min_age=args.min_age * HOUR,
                dry_run=args.dry_run,
                advance=advance,
            )
            found += [(store.name, finding) for finding in await sweep.run()]
    return found


def describe(finding: Finding) -> str:
    """Return a text that describes a finding: the kind of waste, its name, its objects and bytes."""
    size = f": {finding.objects} objects, {finding.nbytes} bytes" if finding.nbytes else ""
    return f"{finding.waste.value} {finding.name}{size}"
