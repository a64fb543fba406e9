"""Read objects by presigned URLs, which the server adds to the chunk map; no credentials and no extra are needed."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit

from hsparse.client.http.connection_pool import BROKEN, ConnectionPool
from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectPlace,
    ObjectReader,
    ObjectUnavailable,
)

AT_ONCE = 16
OK, NOT_FOUND, PRECONDITION_FAILED = 200, 404, 412


class PresignedObjects(ObjectReader):
    """Reads objects by their URLs over persistent connections; URLs are secrets, so no error contains one."""

    def __init__(self, timeout: float = 60.0, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self._timeout = timeout
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, str, int | None], ConnectionPool] = {}

    def read(self, place: ObjectPlace) -> bytes:
        if place.url is None:
            raise ObjectUnavailable(f"{place.key} has no URL")
        parts = urlsplit(place.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ObjectUnavailable(f"{place.key} has a URL that is not of HTTP")
        pool = self._pool(parts.scheme, parts.hostname, parts.port)
        target = f"{parts.path}?{parts.query}"
        try:
            headers = {"If-Match": f'"{place.etag}"'}
            response, data = pool.exchange(*pool.take(), "GET", target, None, headers)
        except BROKEN as error:
            raise ObjectUnavailable(f"{place.key}: {type(error).__name__}") from None
        if response.status in (NOT_FOUND, PRECONDITION_FAILED):
            raise ObjectChanged(place.key)
        if response.status != OK:
            raise ObjectUnavailable(f"{place.key} was answered with {response.status}")
        if response.headers.get("ETag", "").strip('"') != place.etag:
            raise ObjectChanged(place.key)
        return data

    def close(self) -> None:
        with self._lock:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()

    def _pool(self, scheme: str, host: str, port: int | None) -> ConnectionPool:
        with self._lock:
            name = scheme, host, port
            if name not in self._pools:
                self._pools[name] = ConnectionPool(scheme, host, port, self._timeout)
            return self._pools[name]

    def __getstate__(self) -> dict[str, Any]:
        return {"_timeout": self._timeout, "at_once": self.at_once}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_timeout"], state["at_once"])  # type: ignore[misc]
