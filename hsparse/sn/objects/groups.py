"""Groups."""

from __future__ import annotations

from aiohttp import web

from hsparse.sn.context import Context
from hsparse.sn.objects.create import post_objects
from hsparse.sn.objects.objects import delete_object, get_object, get_object_by_path, list_objects
from hsparse.wire.message import Record


async def get_groups(context: Context) -> web.StreamResponse:
    """List the groups that can be reached, without the root group."""
    return await list_objects(context, "groups")


async def get_group(context: Context) -> web.StreamResponse:
    """Answer with one group."""
    return await get_object(context, "groups")


async def get_group_by_path(context: Context) -> web.StreamResponse:
    """Answer with the group at `h5path`."""
    return await get_object_by_path(context, "groups")


async def post_groups(context: Context) -> web.StreamResponse:
    """Create one group, or several."""
    return await post_objects(context, "groups", _fill)


async def delete_group(context: Context) -> web.StreamResponse:
    """Delete a group; its members stay, as in HSDS."""
    return await delete_object(context, "groups")


async def _fill(context: Context, record: Record, body: Record) -> None:
    """A group has nothing but what every object has."""
