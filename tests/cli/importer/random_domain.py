"""Random domains, drawn as the bodies of the requests that make them, and made over REST.

Whatever refers to an object says its name, `@3`; where it is sent the name becomes the object's id. Objects are
numbered as they are drawn, groups, committed types and datasets each from 0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import prod
from typing import Any

from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.model.datatype import parse_type
from hsparse.model.element import Fixed
from tests.model.type_strategies import ID, ITEMS, NAMES, NUMBERS, values_of

Json = dict[str, Any]
TITLES = st.sampled_from(["a", "b", "größe", "with space", "x.defined", "日本", "c" * 40, "z"])
NUMBER = st.sampled_from(sorted(NUMBERS))
DENSE_FILTERS: tuple[list[Any], ...] = (
    [], [{"id": 1, "level": 4}], [{"id": 2}, {"id": 1, "level": 9}],
    [{"id": 2}, {"id": 1, "level": 1}, {"id": 3}], [{"id": 3}], ["lzf"], ["lz4"], ["zstd"], ["bitshuffle"],
    [{"class": "H5Z_FILTER_BLOSC"}],
)  # fmt: skip
SPARSE_FILTERS: tuple[list[Any], ...] = (
    [],
    ["none"],
    [{"id": 1, "level": 4}],
    [{"id": 2}, {"id": 1, "level": 1}],
    [{"id": 1, "level": 4, "section": "H5_SECTION_FIXED"}],
    [{"id": 2, "section": "H5_SECTION_SELECTION"}, {"id": 1, "level": 4, "section": "H5_SECTION_SELECTION"}],
    ["zstd"],
    [{"id": 3}],
)
UNSELECTED = tuple(some for some in SPARSE_FILTERS if "SELECTION" not in str(some))
"""Those for dense structured chunks, which have no section of places."""
MISSING = ID.removeprefix("d-")
"""The id in drawn references: it stands for the domain's first dataset, `REFERRED`."""
MOST = 40
"""Elements that a dataset has, at most."""


@dataclass(frozen=True)
class DrawnDataset:
    """What creates a dataset; then the requests about its values: path behind its own, method, body, parameters."""

    body: Json
    changes: list[tuple[str, str, Json, Json]]


REFERRED = DrawnDataset({"type": "H5T_STD_I32LE", "shape": [8, 9], "attributes": {}}, [])
"""What all references lead to: the extent is that of drawn regions."""


@dataclass(frozen=True)
class DrawnDomain:
    """Bodies in the order of creation; `links` are of the groups by number, the first is the root."""

    groups: list[Json]
    types: list[Json]
    datasets: list[DrawnDataset]
    links: list[list[tuple[str, Json]]] = field(default_factory=list)


@st.composite
def extents(draw: st.DrawFn) -> tuple[int, ...]:
    dims = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    while prod(dims) > MOST:
        dims = dims[:-1]
    return dims


@st.composite
def some_values(draw: st.DrawFn, item: Any, dims: tuple[int, ...]) -> Any:
    """Return values of an extent, of at most three different elements."""
    few = draw(st.lists(values_of(item), min_size=1, max_size=3))
    count = iter(range(prod(dims)))

    def fill(left: tuple[int, ...]) -> Any:
        return [fill(left[1:]) for _ in range(left[0])] if left else few[next(count) % len(few)]

    return fill(dims)


@st.composite
def attributes(draw: st.DrawFn, types: list[Any]) -> Json:
    found = {}
    for name in draw(st.lists(NAMES, unique=True, max_size=2)):
        number = draw(st.integers(-1, len(types) - 1))
        item = types[number] if number >= 0 else draw(ITEMS)
        body: Json = {"type": f"@t{number}" if number >= 0 else item}
        if draw(st.integers(0, 9)) == 0:
            body["shape"] = "H5S_NULL"
        else:
            dims = draw(extents())
            body |= {"shape": list(dims), "value": draw(some_values(item, dims))}
        found[name] = body
    return found


@st.composite
def datasets(draw: st.DrawFn, types: list[Any]) -> DrawnDataset:
    number = draw(st.integers(-2, len(types) - 1))
    item = types[number] if number >= 0 else draw(ITEMS if number == -1 else NUMBER)
    body: Json = {"type": f"@t{number}" if number >= 0 else item, "attributes": draw(attributes(types))}
    properties = body["creationProperties"] = {"CreateOrder": draw(st.integers(0, 1))}
    if draw(st.integers(0, 19)) == 0:
        return DrawnDataset(body | {"shape": "H5S_NULL"}, [])
    dims = draw(extents())
    body["shape"] = list(dims)
    kind = draw(
        st.sampled_from(["any", "contiguous", "compact", "chunked", "dense", "sparse", "sparse", "sparse"])
    )
    variable = not isinstance(parse_type(item).element, Fixed)
    if (kind == "dense" and not variable) or (not dims and kind not in ("any", "contiguous", "compact")):
        kind = "any"
    limits = dims
    if dims and kind not in ("any", "contiguous", "compact"):
        chunk = [draw(st.integers(1, length)) for length in dims]
        limits = tuple(draw(st.sampled_from([length, length, length + 3, 0])) for length in dims)
        flags = (["H5D_SPARSE_DATA"] if kind == "sparse" else []) + (["H5D_VL_DATA"] if variable else [])
        layout: Json = {"class": "H5D_CHUNKED" if kind == "chunked" else "H5D_STRUCT_CHUNK", "dims": chunk}
        properties["layout"] = layout | ({} if kind == "chunked" else {"flags": flags})
        body |= {"maxdims": list(limits)} if limits != dims else {}
        choices = {"chunked": DENSE_FILTERS, "dense": UNSELECTED, "sparse": SPARSE_FILTERS}
        properties["filters"] = draw(st.sampled_from(choices[kind]))
    elif kind != "any":
        properties["layout"] = {"class": f"H5D_{kind.upper()}"}
    if draw(st.booleans()):
        properties["fillValue"] = draw(values_of(item))
    return DrawnDataset(body, draw(changes(item, dims, limits, sparse=kind == "sparse")))


@st.composite
def boxes(draw: st.DrawFn, dims: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    starts = [draw(st.integers(0, length - 1)) for length in dims]
    stops = [draw(st.integers(start + 1, length)) for start, length in zip(starts, dims, strict=True)]
    select = ",".join(f"{start}:{stop}" for start, stop in zip(starts, stops, strict=True))
    return f"[{select}]", tuple(stop - start for start, stop in zip(starts, stops, strict=True))


@st.composite
def changes(
    draw: st.DrawFn, item: Any, dims: tuple[int, ...], limits: tuple[int, ...], *, sparse: bool
) -> list[tuple[str, str, Json, Json]]:
    found: list[tuple[str, str, Json, Json]] = []
    for _ in range(draw(st.integers(0, 3))):
        if not dims:
            found.append(("/value", "PUT", {"value": draw(some_values(item, ()))}, {}))
            continue
        what = draw(st.sampled_from(["write", "write", "write", "erase", "resize"]))
        if what == "resize" and limits != dims:
            dims = tuple(
                length if not draw(st.booleans()) else draw(st.integers(0, limit or length + 4))
                for length, limit in zip(dims, limits, strict=True)
            )
            if prod(dims) > 4 * MOST:
                break
            found.append(("/shape", "PUT", {"shape": list(dims)}, {}))
            if not prod(dims):
                break
            continue
        select, shape = draw(boxes(dims))
        if what == "erase" and sparse:
            found.append(("/value", "DELETE", {}, {"select": select}))
        else:
            found.append(("/value", "PUT", {"value": draw(some_values(item, shape)), "select": select}, {}))
    return found


@st.composite
def domains(draw: st.DrawFn) -> DrawnDomain:
    types = draw(st.lists(ITEMS, max_size=2))
    committed = [{"type": item, "attributes": draw(attributes(types[:at]))} for at, item in enumerate(types)]
    drawn = [REFERRED, *draw(st.lists(datasets(types), min_size=1, max_size=3))]
    groups = [
        {
            "attributes": draw(attributes(types)),
            "creationProperties": {"CreateOrder": draw(st.integers(0, 1))},
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    everything = [
        *(f"@g{at}" for at in range(len(groups))),
        *(f"@t{at}" for at in range(len(types))),
        *(f"@d{at}" for at in range(len(drawn))),
    ]
    links: list[list[tuple[str, Json]]] = [[] for _ in groups]
    # Each object has a link from what the root leads to, so that all are in the file; most of them in the root.
    for at, name in enumerate(everything[1:]):
        above = min(at, len(groups) - 1)
        links[draw(st.sampled_from([0, 0, *range(1, above + 1)]))].append((f"o{at}", {"id": name}))
    for titles in links:
        for title in draw(st.lists(TITLES, unique=True, max_size=3)):
            targets = st.sampled_from(everything).map(lambda name: {"id": name})
            soft = st.just({"h5path": "/o0/größe"})
            titles.append((title, draw(targets | soft | st.just({"h5path": "/x", "h5domain": "other.h5"}))))
    return DrawnDomain(groups, committed, drawn, links)


def make_domain(connection: Connection, drawn: DrawnDomain) -> None:
    """Make the domain of a connection."""
    names: dict[str, str] = {}

    def named(body: Any) -> Any:
        """Return a body with ids for names and for drawn references."""
        told = json.dumps(body)
        for name, id in names.items():
            told = told.replace(f'"{name}"', f'"{id}"')
        return json.loads(told.replace(MISSING, names.get("@d0", ID).removeprefix("d-")))

    root = connection.json(
        "PUT", "/", {"group": {"creationProperties": drawn.groups[0]["creationProperties"]}}
    )["root"]
    names["@g0"] = root
    later: list[tuple[str, Json]] = [(f"/groups/{root}", drawn.groups[0])]

    def create(collection: str, name: str, body: Json) -> None:
        # Attributes may refer to what is not there yet.
        made = connection.json("POST", f"/{collection}", named({**body, "attributes": {}}))
        names[name] = made["id"]
        later.append((f"/{collection}/{made['id']}", body))

    bodies = {
        "groups": drawn.groups[1:],
        "datatypes": drawn.types,
        "datasets": [one.body for one in drawn.datasets],
    }
    letters = {"groups": "g", "datatypes": "t", "datasets": "d"}
    for collection, some in bodies.items():
        for at, body in enumerate(some, collection == "groups"):
            create(collection, f"@{letters[collection]}{at}", body)
    for path, body in later:
        for name, attribute in body["attributes"].items():
            connection.json("PUT", f"{path}/attributes/{name}", named(attribute))
    for at, one in enumerate(drawn.datasets):
        for path, method, body, parameters in one.changes:
            connection.json(method, f"/datasets/{names[f'@d{at}']}{path}", named(body) or None, **parameters)
    for at, links in enumerate(drawn.links):
        for title, link in links:
            connection.json("PUT", f"/groups/{names[f'@g{at}']}/links/{title}", named(link))
