"""Functions that return the tree of objects below a group as text, or as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from hsparse.client.connection import Connection, Json
from hsparse.client.sparse_dataset import is_sparse
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import HsparseError
from hsparse.optional_module import OptionalModule

MAX_OBJECTS = 200
"""The maximum number of objects in an HTML tree."""

HTML = OptionalModule("hsparse.client.html_repr")


def tree_text(name: str, records: Mapping[str, Json]) -> str:
    """Return a text with one line for each object below the group `name`, sorted by path, with shape and dtype."""
    lines = [name]
    for path, record in sorted(records.items(), key=lambda one: one[0].split("/")):
        above, _, title = path.rpartition("/")
        indent = "  " * (above.count("/") + bool(above) + 1)
        lines.append(f"{indent}{title}{description(record)}")
    return "\n".join(lines)


def description(record: Json) -> str:
    """Return the text that follows the name of an object in a tree: for a dataset, its shape and dtype."""
    if record["id"][0] != "d":
        return "/" if record["id"][0] == "g" else "  a type"
    try:
        dtype = str(Hdf5Type.parse(record["type"]).dtype)
    except HsparseError:  # numpy has no equivalent type
        dtype = "of a type that only h5pyd reads"
    kind = ", sparse" if is_sparse(record) else ""
    shape = shape_of(record["shape"])
    return f"  {'null' if shape is None else shape} {dtype}{kind}"


def tree_html(connection: Connection, id: str, name: str, title: str) -> str:
    """Return HTML with the first `MAX_OBJECTS` objects that hard links reach below a group; sends two requests."""
    found = connection.json("GET", f"/groups/{id}/links", follow_links=1, Limit=MAX_OBJECTS + 1)["links"]
    links = found if isinstance(found, dict) else {id: found}  # HSDS returns only one group
    rows = list(islice(_rows(links, id, "", frozenset()), MAX_OBJECTS + 1))
    start = name.rstrip("/")
    paths = [f"{start}/{at}" for at, link in rows if link.get("id", "").startswith("d-")]
    records: Json = {}
    with suppress(HsparseError):  # an object was deleted, or the server lacks this request
        records = connection.json("POST", "/", {"h5paths": paths})["h5paths"] if paths else {}
    html = HTML.load()
    lines = [html.LINE.format(0, f"<b>{html.html_text(title)}</b>")]
    for at, link in rows[:MAX_OBJECTS]:
        about = _about(link, records.get(f"{start}/{at}"))
        text = f"{html.html_text(link['title'])}{html.html_text(about)}"
        lines.append(html.LINE.format(1 + 2 * at.count("/"), text))
    if len(rows) > MAX_OBJECTS:
        lines.append(html.LINE.format(1, f"... only {MAX_OBJECTS} are shown"))
    return "".join(lines)


def _rows(links: Json, id: str, path: str, above: frozenset[str]) -> Iterator[tuple[str, Json]]:
    for link in links.get(id, ()):
        at = f"{path}{link['title']}"
        yield at, link
        below = link.get("id", "")
        if below in links and below not in above | {id}:
            yield from _rows(links, below, f"{at}/", above | {id})


def _about(link: Json, record: Json | None) -> str:
    if record is not None:
        return description(record)
    if "id" not in link:
        return f" -> {link.get('h5domain', '')}{link.get('h5path', '')}"
    return {"g": "/", "t": "  a type"}.get(link["id"][0], "")
