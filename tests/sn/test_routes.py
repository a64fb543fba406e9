"""Every route's errors."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.sn.routes import ROUTES
from hsparse.testing.rest_client import RestClient


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_refuses_in_one_shape(bare: RestClient, route: Any) -> None:
    path = route.path.replace("{collection:groups|datasets|datatypes}", "groups")
    for name in ("id", "title", "name", "user"):
        path = path.replace(f"{{{name}}}", "x")
    reply = await bare(route.method, path, user="nobody")
    assert reply.status == 401
    assert set(reply.body) == {"error"}
    assert set(reply["error"]) == {"kind", "message"}
    if route.right is not None:
        assert (await bare(route.method, path)).status == 400, "no domain"
        assert (await bare(route.method, path, domain="/home/test_user1/none.h5")).status == 404


async def test_no_such_method(bare: RestClient) -> None:
    assert (await bare("DELETE", "/groups")).status == 405
    assert (await bare("POST", "/about")).status == 405
