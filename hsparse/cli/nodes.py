"""`hsparse nodes`: lists the members of a cluster that the store records."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial

from hsparse.cli.environment import client_default
from hsparse.cli.node_process import add_setting_flags, settings_of
from hsparse.cli.stores import opened_stores
from hsparse.client.connection import Connection
from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject, rebuild_membership
from hsparse.config import Settings
from hsparse.setting import declared_settings
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.store_settings import StoreSettings

DESCRIPTION = """\
List the members of a cluster that the store records. The first line has the epoch, which grows by one whenever the
members change, and the further buckets that all data nodes serve. Each other line has a member's id, its URL, its role
(owner: a data node that owns objects; leaving: one that is leaving; server: a whole server), the state of its lease,
and for a data node the newest version of messages that it supports.

Without --root and --bucket, the command asks the server in HSPARSE_ENDPOINT, if set, for its data nodes.

With --rebuild an empty list replaces the list of members, even if the list is damaged or missing. The command first
revokes all leases, and waits a few seconds until no lease is in force. It changes no data. Running data nodes and
servers notice that their leases are revoked, and join again; until then changes wait, but reads do not.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags, and set `run` in the parsed arguments."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_setting_flags(parser, *declared_settings(StoreSettings))
    parser.add_argument("--rebuild", action="store_true", help="replace the list with an empty one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the members or, with `--rebuild`, empty the list of members and print the empty list; return 0."""
    settings, endpoint = settings_of(args), client_default("endpoint")
    if endpoint is None or args.rebuild or settings.store.root is not None or settings.store.bucket:
        asyncio.run(_list(settings, args.rebuild))
        return 0
    with Connection(endpoint) as connection:
        found = connection.json("GET", "/info")["data_nodes"]
    print(f"{endpoint}, {len(found)} data nodes")
    for one in found:
        print(f"{one['id']}  {one['state']}")
    return 0


async def _list(settings: Settings, rebuild: bool) -> None:
    async with opened_stores(settings.store, there=True) as stores:
        token = settings.cluster.node_token
        if rebuild:
            view = await rebuild_membership(stores[0], token, SystemClock(), partial(print, flush=True))
        else:
            view = await MembershipObject(stores[0], token).read()
        for line in await _lines(stores[0], view):
            print(line)


async def _lines(store: ObjectStore, view: Membership) -> list[str]:
    leases = LeaseObjects(store)
    also = f", also for the buckets {', '.join(sorted(view.buckets))}" if view.buckets else ""
    found = [f"epoch {view.epoch}, {len(view.nodes)} data nodes{also}"]
    for id in view.members:
        lease = await leases.read(id)
        role = "server" if id in view.servers else "leaving" if id in view.leaving else "owner"
        state = "no lease" if lease is None else f"lease {lease.state}"
        version = f"  version {view.versions[id]}" if id in view.versions else ""
        found.append(f"{id}  {view.urls.get(id, '-')}  {role}  {state}{version}")
    return found
