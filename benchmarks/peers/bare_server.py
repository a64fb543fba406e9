"""A bare aiohttp handler that accepts any body and answers a requested number of bytes; run as a script.

Under `/static/` it serves the files of its working directory by aiohttp.
"""

from __future__ import annotations

import json
import sys

import uvloop
from aiohttp import web

BLOCK = bytes(2**20)


async def about(request: web.Request) -> web.Response:
    """Answer like a server that is ready."""
    return web.json_response({"state": "READY"})


async def answer(request: web.Request) -> web.StreamResponse:
    """Read the body and answer `?bytes=` bytes, in pieces of at most 1 MiB."""
    await request.read()
    size = int(request.query.get("bytes", "0"))
    if size <= len(BLOCK):
        return web.Response(body=BLOCK[:size], content_type="application/octet-stream")
    response = web.StreamResponse(headers={"Content-Length": str(size)})
    await response.prepare(request)
    while size > 0:
        piece = BLOCK[:size]
        await response.write(piece)
        size -= len(piece)
    await response.write_eof()
    return response


def main() -> None:
    """Serve on the port given as a JSON number on the command line."""
    app = web.Application(client_max_size=2**30)
    app.router.add_get("/about", about)
    app.router.add_static("/static", ".")
    app.router.add_route("*", "/{path:.*}", answer)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=json.loads(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
