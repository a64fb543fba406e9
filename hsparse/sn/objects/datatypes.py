"""Committed types."""

from __future__ import annotations

from aiohttp import web

from hsparse.sn.context import Context
from hsparse.sn.objects.create import post_objects
from hsparse.sn.objects.objects import delete_object, get_object, get_object_by_path, list_objects
from hsparse.sn.objects.type_reference import read_type
from hsparse.wire.message import Record


async def get_datatypes(context: Context) -> web.StreamResponse:
    """List the committed types that can be reached."""
    return await list_objects(context, "datatypes")


async def get_datatype(context: Context) -> web.StreamResponse:
    """Answer with one committed type."""
    return await get_object(context, "datatypes")


async def get_datatype_by_path(context: Context) -> web.StreamResponse:
    """Answer with the committed type at `h5path`."""
    return await get_object_by_path(context, "datatypes")


async def post_datatypes(context: Context) -> web.StreamResponse:
    """Commit one type, or several."""
    return await post_objects(context, "datatypes", _fill)


async def delete_datatype(context: Context) -> web.StreamResponse:
    """Delete a committed type; what was made with it keeps its own copy."""
    return await delete_object(context, "datatypes")


async def _fill(context: Context, record: Record, body: Record) -> None:
    record["type"] = (await read_type(context, body)).item
