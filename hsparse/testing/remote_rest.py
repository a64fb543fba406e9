"""Raw requests to a server that runs elsewhere, as `RestClient` sends them to one in this process."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from hsparse.testing.door import NotDone
from hsparse.testing.rest_client import BINARY, Reply


class RemoteRest:
    """Requests about `domain` to the server at `url`, as whoever needs no credentials there."""

    def __init__(self, url: str) -> None:
        self.domain: str | None = None
        timeout = aiohttp.ClientTimeout(total=60)
        self._session = aiohttp.ClientSession(url, timeout=timeout, connector=aiohttp.TCPConnector(limit=0))

    async def close(self) -> None:
        await self._session.close()

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """Send a request; `options` are parameters, but for `accept` and `headers`.

        `NotDone` when the connection ended before the answer did.
        """
        headers = dict(options.pop("headers", {}))
        if "accept" in options:
            headers["Accept"] = options.pop("accept")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", BINARY if data is body else "application/json")
        params = {key: str(value) for key, value in options.items()}
        params |= {} if self.domain is None else {"domain": self.domain}
        try:
            async with self._session.request(
                method, path, data=data, params=params, headers=headers
            ) as response:
                answer = await response.read()
                is_json = response.content_type == "application/json"
                return Reply(response.status, json.loads(answer) if is_json else answer, response.headers)
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise NotDone(f"{method} {path} was not answered: {error!r}") from error
