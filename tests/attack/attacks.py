"""Attacks by one user with rights in one folder, or by nobody: each takes a target, seconds, and counts answers."""

from __future__ import annotations

import asyncio
import json
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count, cycle

from tests.attack.target import BINARY, USER, Target
from tests.campaign.load import LOST, http_request

Attack = Callable[[Target, float, Counter[int]], Awaitable[None]]
MIB = 1 << 20
WHOLE = 1.0
"""Seconds of an attack from which on what is sent is as large as it may be; shorter ones only try it."""


async def silent_connections(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Connections that send nothing."""
    await target.hold(b"", 600, seconds, tally)


async def slow_heads(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Connections that send a part of a head."""
    await target.hold(b"GET /about HTTP/1.1\r\nHost: localhost\r\nX-", 300, seconds, tally)


async def announced_bodies(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Requests that announce a body, and send none."""
    request = target.request("PUT", "/datasets/{dense}/value", b"x", BINARY)
    await target.hold(
        request[:-1].replace(b"Content-Length: 1\r", b"Content-Length: 90000000\r"), 300, seconds, tally
    )


async def slow_readers(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Requests for 32 MiB of values, which nobody reads."""
    await target.hold(target.request("GET", "/datasets/{dense}/value", accept=BINARY), 30, seconds, tally)


async def nested_json(target: Target, seconds: float, tally: Counter[int]) -> None:
    """JSON of a hundred thousand levels, and of a million lists."""
    bodies = (b"[" * 100_000 + b"]" * 100_000, b'{"value": [' + b"[]," * MIB + b"[]]}")
    requests = [target.request("PUT", "/datasets/{dense}/value", body) for body in bodies]
    await target.repeat(lambda: requests[tally.total() % 2], 4, seconds, tally)


async def long_json(target: Target, seconds: float, tally: Counter[int]) -> None:
    """JSON of 8 MiB that says nothing."""
    body = b'{"value": [' + b"1.25," * (8 * MIB // 5) + b"1]}"
    request = target.request("PUT", "/datasets/{sparse}/value", body)
    await target.repeat(lambda: request, 4, seconds, tally)


async def many_names(target: Target, seconds: float, tally: Counter[int]) -> None:
    """16 MiB of names in lists and objects; of ids, and of empty titles."""
    size = 16 * MIB if seconds >= WHOLE else MIB
    names = [f"{number:x}" for number in range(size // 9)]
    members = json.dumps(dict.fromkeys(names, 1)).encode()
    bodies = (
        ("POST", "/groups/{root}/attributes", json.dumps({"attr_names": names}).encode()),
        ("POST", "/groups/{root}/links", json.dumps({"titles": [""] * (size // 4)}).encode()),
        ("PUT", "/groups/{root}/links", b'{"links": %b}' % members),
        ("PUT", "/groups/{root}/attributes", b'{"attributes": %b}' % members),
        ("POST", "/groups/{root}/attributes", json.dumps({"obj_ids": [target.root] * (size // 42)}).encode()),
        ("PUT", "/acls/ann", members),
        ("PUT", "/quota", members),
        ("POST", "/datasets", members),
    )
    requests = cycle([target.request(*one) for one in bodies])
    await target.repeat(lambda: next(requests), 4, seconds, tally)


async def named_null(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Reads of an attribute named null, of 4 million numbers, by every way."""
    own = "/groups/{root}/attributes/null"
    count = 4_000_000 if seconds >= WHOLE else 100_000
    body = json.dumps({"type": "H5T_STD_I64LE", "shape": [count]}).encode()
    tally[await target.exchange(target.request("PUT", own, body), 60)] += 1
    tally[
        await target.exchange(
            target.request("PUT", f"{own}/value", b"\x7f" + bytes(8 * count - 1), BINARY), 60
        )
    ] += 1
    requests = cycle(
        [
            target.request("GET", own),
            target.request("GET", "/groups/{root}", include_attrs="1"),
            target.request("GET", "/", getobjs="1", include_attrs="1"),
        ]
    )
    await target.repeat(lambda: next(requests), 4, seconds, tally)
    tally[await target.exchange(target.request("DELETE", own), 60)] += 1


async def large_bodies(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Bodies of 90 MB in parallel."""
    request = target.request("PUT", "/datasets/{computed}/value", bytes(90_000_000), BINARY)
    await target.repeat(lambda: request, 6, seconds, tally)


async def compressed_bodies(target: Target, seconds: float, tally: Counter[int]) -> None:
    """A body of 64 MiB, compressed to 64 kB."""
    request = target.request("PUT", "/datasets/{dense}/value", zlib.compress(bytes(1 << 26), 9), BINARY)
    request = request.replace(b"Content-Type", b"Content-Encoding: deflate\r\nContent-Type", 1)
    await target.repeat(lambda: request, 8, seconds, tally)


async def stored_bombs(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Stored chunks that inflate to more than a chunk."""
    request = target.request(
        "PUT", "/datasets/{deflated}/chunks/0/value", zlib.compress(bytes(1 << 26), 9), BINARY
    )
    await target.repeat(lambda: request, 8, seconds, tally)


async def scattered_writes(target: Target, seconds: float, tally: Counter[int]) -> None:
    """One value for every thousandth row of 131 million, and for a grid over a chunk of 60,000 x 60,000."""
    bodies = (
        ("{tall}", {"start": [0], "stop": [131_000_000], "step": [1000], "value": 1.5}),
        ("{sparse}", {"start": [0, 0], "stop": [60_000, 60_000], "step": [7, 11], "value": 1.5}),
    )
    requests = [
        target.request("PUT", f"/datasets/{name}/value", json.dumps(body).encode()) for name, body in bodies
    ]
    await target.repeat(lambda: requests[tally.total() % 2], 4, seconds, tally)


async def abandoned_queries(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Queries over 10^10 computed values, more than a minute of work, by clients that hang up."""
    request = target.request("GET", "/datasets/{computed}/value", query="_ < 0", select="[0:10000000000]")
    await target.repeat(lambda: request, 16, seconds, tally, patience=0.05)


async def many_points(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Half a million points of computed values."""
    request = target.request(
        "POST", "/datasets/{computed}/value", json.dumps({"points": list(range(0, 10**6, 2))}).encode()
    )
    await target.repeat(lambda: request, 4, seconds, tally)


async def long_paths(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Six hundred paths through two hundred soft links each."""
    body = json.dumps({"h5paths": [f"/step0/{number}" for number in range(600)]}).encode()
    request = target.request("POST", "/", body, follow_soft_links="1")
    await target.repeat(lambda: request, 8, seconds, tally)


async def strange_types(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Compounds of many fields, nested deeply; datasets of a rank that nothing has."""
    nested: object = "H5T_STD_I8LE"
    for _ in range(200):
        nested = {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": nested}]}
    wide = {
        "class": "H5T_COMPOUND",
        "fields": [{"name": f"f{k}", "type": "H5T_STD_I8LE"} for k in range(50_000)],
    }
    bodies = [
        {"type": nested, "shape": [1]},
        {"type": wide, "shape": [1]},
        {"type": "H5T_STD_I8LE", "shape": [1] * 5000},
    ]
    requests = [target.request("POST", "/datasets", json.dumps(body).encode()) for body in bodies]
    await target.repeat(lambda: requests[tally.total() % len(requests)], 4, seconds, tally)


async def large_attributes(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Attributes of half a megabyte each, as many as there is room for, and reads of all of them."""
    text = json.dumps(
        {
            "type": {"class": "H5T_STRING", "length": MIB // 2, "charSet": "H5T_CSET_ASCII"},
            "value": "x" * (MIB // 2),
        }
    )
    numbers = count()

    def request() -> bytes:
        number = next(numbers)
        if number % 4 == 3:
            return target.request("GET", "/groups/{root}", include_attrs="1")
        return target.request("PUT", f"/groups/{{root}}/attributes/a{number}", text.encode())

    await target.repeat(request, 4, seconds, tally)


async def strangers(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Sign-ins by names that there are not."""
    numbers = count()

    def request() -> bytes:
        return http_request("GET", target.path("/"), user=f"nobody{next(numbers)}")

    await target.repeat(request, 16, seconds, tally)


async def guesses(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Wrong passwords of another user."""
    numbers = count()

    def request() -> bytes:
        guess = b64encode(f"ann:{next(numbers)}".encode()).decode()
        right = b64encode(f"{USER}:{USER}".encode()).decode()
        return target.request("GET", "/").replace(right.encode(), guess.encode())

    await target.repeat(request, 16, seconds, tally)


async def many_requests(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Reads of a megabyte of JSON by two hundred clients."""
    request = target.request("GET", "/datasets/{dense}/value", select="[0:16,:]")
    await target.repeat(lambda: request, 200, seconds, tally)


async def broken_requests(target: Target, seconds: float, tally: Counter[int]) -> None:
    """Bodies that end before they should, and lines that are no HTTP."""
    body = target.request("PUT", "/datasets/{dense}/value", bytes(MIB), BINARY)[: MIB // 2]
    every = (body, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 1000)
    end = asyncio.get_running_loop().time() + seconds
    while True:
        for data in every:
            with suppress(OSError):
                _, writer = await target.connect()
                writer.write(data)
                await writer.drain()
                writer.close()
                tally[LOST] += 1
        if asyncio.get_running_loop().time() >= end:
            return


ATTACKS: tuple[Attack, ...] = (
    silent_connections,
    slow_heads,
    announced_bodies,
    slow_readers,
    nested_json,
    long_json,
    many_names,
    named_null,
    large_bodies,
    compressed_bodies,
    stored_bombs,
    scattered_writes,
    abandoned_queries,
    many_points,
    long_paths,
    strange_types,
    large_attributes,
    strangers,
    guesses,
    many_requests,
    broken_requests,
)
