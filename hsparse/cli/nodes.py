"""`hsparse nodes`: the members of a cluster, as the store has them.

Tests: tests/cli/test_nodes.py.
"""

from __future__ import annotations

import argparse
import asyncio

from hsparse.cli.node_process import add_setting_flags, settings_of
from hsparse.cli.stores import opened_stores
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.config import Settings
from hsparse.setting import declared_settings
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.store_settings import StoreSettings

DESCRIPTION = """\
List the data nodes of a cluster as the store has them: a line for each, with its id, its URL, whether it owns objects
or is leaving, and the state of its lease. The first line has the epoch: it grows by one whenever owners change.

With --rebuild the list is replaced by an empty one, also if it is damaged. No data is touched, and data nodes that
run join again by themselves.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags; the parsed arguments have `run`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_setting_flags(parser, *declared_settings(StoreSettings))
    parser.add_argument("--rebuild", action="store_true", help="replace the list by an empty one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the members, or rebuild their list."""
    asyncio.run(_list(settings_of(args), args.rebuild))
    return 0


async def _list(settings: Settings, rebuild: bool) -> None:
    async with opened_stores(settings.store) as stores:
        stored = MembershipObject(stores[0], settings.cluster.node_token)
        view = await (stored.rebuild() if rebuild else stored.read())
        for line in await _lines(stores[0], view):
            print(line)


async def _lines(store: ObjectStore, view: Membership) -> list[str]:
    leases = LeaseObjects(store)
    found = [f"epoch {view.epoch}, {len(view.nodes)} data nodes"]
    for id in view.members:
        lease = await leases.read(id)
        role = "leaving" if id in view.leaving else "owner"
        state = "no lease" if lease is None else f"lease {lease.state}"
        found.append(f"{id}  {view.urls[id]}  {role}  {state}")
    return found
