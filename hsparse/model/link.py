"""Links (conversion from requests to the stored form and to responses) and region references (bytes and JSON).

The JSON of a region reference is
`{"id": uuid, "select_type": "H5S_SEL_POINTS" or "H5S_SEL_HYPERSLABS", "selection": [...]}`. The selection is omitted
for the whole dataset, and a null reference is None. The bytes have h5json's own format and are stored unchanged.
"""

from __future__ import annotations

import struct
from itertools import starmap
from math import prod
from posixpath import dirname, join, normpath
from typing import Any

from hsparse.errors import BadRequest
from hsparse.model.ids import check_id, collection_of
from hsparse.model.short_text import short_repr
from hsparse.optional_module import OptionalModule

HARD = "H5L_TYPE_HARD"
SOFT = "H5L_TYPE_SOFT"
EXTERNAL = "H5L_TYPE_EXTERNAL"
PROTOCOL = "hdf5:/"
LEFT_OUT = "left out: "
"""The prefix of an external link's file if the link replaces an object of an HDF5 file that was not imported.

The reason follows the prefix, because clients that cannot open a link's file show its name to the user.
"""
MAX_TITLE = 1024
MAX_PATH = 4096
Json = dict[str, Any]


def check_title(title: Any) -> str:
    """Return `title` if it is a valid title of a link; raise `BadRequest` otherwise."""
    if not isinstance(title, str) or not 0 < len(title) <= MAX_TITLE:
        raise BadRequest(
            f"A link's title must be a string of 1 to {MAX_TITLE} characters, not {short_repr(title)}."
        )
    if "/" in title or title == ".":
        raise BadRequest(
            f"The title {short_repr(title)} cannot name a link: '/' separates titles and '.' is the group itself."
        )
    return title


def parse_link(body: Any) -> Json:
    """Return the stored form of a link in a request; raise `BadRequest` if it is invalid.

    A hard link has `id`, a soft link has `h5path`, an external link has `h5path` and `file` (HSDS 0.9: `h5domain`).
    """
    if not isinstance(body, dict):
        raise BadRequest(f"A link must be an object, not {short_repr(body)}.")
    link = _parse(body)
    kind = body.get("class")
    if kind not in (None, link["class"]):
        raise BadRequest(f"A link with these keys is of class {link['class']}, not {short_repr(kind)}.")
    return link


def link_json(title: str, link: Json) -> Json:
    """Return a link in the form of the response to `GET .../links/{title}`."""
    answer = {"title": title, "class": link["class"]}
    if link["class"] == HARD:
        return answer | {"id": link["id"], "collection": collection_of(link["id"])}
    return answer | _target(link)


def listed_link_json(title: str, link: Json) -> Json:
    """Return a link in the form of an item in a list of links."""
    return {**group_link_json(link), "title": title}


def group_link_json(link: Json) -> Json:
    """Return a link in the form of a value in a group's `links`, whose keys are titles."""
    target = {"id": link["id"]} if link["class"] == HARD else _target(link)
    return {**target, "class": link["class"], "created": link.get("created", 0)}


def external_file(link: Json) -> str:
    """Return an external link's file: `h5domain`, or `file` in records of HSDS 1.0."""
    return str(link.get("h5domain") or link.get("file"))


def left_out_link(reason: str) -> Json:
    """Return the body of the external link that replaces an object which is not imported for `reason`."""
    text = f"{LEFT_OUT}{reason}".encode(errors="backslashreplace").decode()[:MAX_PATH]
    # The reason is also the path: for a file in memory h5py opens the same file under any name, and must fail there.
    return {"h5path": text, "file": text}


def left_out_reason(link: Json) -> str:
    """Return the reason why the object that a stored link replaces was not imported, or `""` for any other link."""
    file = external_file(link) if link["class"] == EXTERNAL else ""
    return file.removeprefix(LEFT_OUT) if file.startswith(LEFT_OUT) else ""


def external_domain(file: str, linking: str, bucket: str = "") -> str:
    """Return the domain that `file` names in an external link of the domain `linking`.

    As in HDF5, a relative name starts at the folder of `linking`. A name that begins with `bucket` is absolute.
    """
    if file.startswith(("/", PROTOCOL)) or (bucket and file.partition("/")[0] == bucket):
        return file
    return normpath(join(dirname(linking), file))


def same_link(one: Json, other: Json) -> bool:
    """Return whether two stored links have the same class and target, regardless of creation time and HSDS version."""
    return _essence(one) == _essence(other)


def _essence(link: Json) -> tuple[Any, ...]:
    file = external_file(link) if link["class"] == EXTERNAL else None
    return link["class"], link.get("id"), link.get("h5path"), file


def _parse(body: Json) -> Json:
    if "id" in body:
        if "h5path" in body:
            raise BadRequest("A link has an id (hard) or an h5path (soft), not both: leave one out.")
        if not isinstance(body["id"], str):
            raise BadRequest(f"{short_repr(body['id'])} is not an object id.")
        return {"class": HARD, "id": check_id(body["id"])}
    path = _text(body, "h5path")
    if path is None:
        raise BadRequest("A link needs an id (hard), an h5path (soft), or an h5path and a file (external).")
    file = _text(body, "file") or _text(body, "h5domain")
    if file is None:
        return {"class": SOFT, "h5path": path}
    # HSDS 1.0 reads `file`, HSDS 0.9 reads `h5domain`.
    return {"class": EXTERNAL, "h5path": path, "file": file, "h5domain": file}


def _text(body: Json, key: str) -> str | None:
    value = body.get(key)
    if value is None or (isinstance(value, str) and 0 < len(value) <= MAX_PATH):
        return value
    raise BadRequest(
        f"A link's {key} must be a string of 1 to {MAX_PATH} characters, not {short_repr(value)}."
    )


def _target(link: Json) -> Json:
    target = {"h5path": link.get("h5path")}
    if link["class"] == EXTERNAL:
        target |= {"file": external_file(link), "h5domain": external_file(link)}
    return target


# h5json is imported late because it imports h5py, which takes as long as importing the whole client.
H5JSON = OptionalModule("h5json.hdf5dtype", "files")
MAX_POINTS = 1 << 16
"""The most elements of a region with several blocks or points, because h5json lists every element."""
MAX_RANK = 32
FAILURES = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
    struct.error,
)


def region_bytes(value: Any) -> bytes:
    """Return the bytes of a region reference in JSON, or no bytes for None or 0; raise `ValueError` otherwise."""
    if value is None or value == 0:
        return b""
    try:
        _check(value)
        return bytes(_h5json().from_json(value).tobytes())
    except FAILURES as error:
        raise ValueError(f"it is no region reference: {error}") from error


def region_json(data: bytes) -> Any:
    """Return the JSON of a region reference, the inverse of `region_bytes`; raise `ValueError` for other bytes."""
    if not data:
        return None
    try:
        return _h5json().frombytes(data).to_json()
    except FAILURES as error:
        raise ValueError(f"the bytes are no region reference: {error}") from error


def _h5json() -> Any:
    """Return h5json's class of region references; raise `Misconfigured` if h5json is not installed."""
    return H5JSON.load().RegionReference


def _check(value: Any) -> None:
    """Raise `ValueError` if a region reference is invalid or h5json would take too long to convert it."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise ValueError("an object with an id is needed")
    if "selection_dict" in value:
        _check_dict(value["selection_dict"])
        return
    selection = value.get("selection") or []
    if not isinstance(selection, list) or len(selection) > MAX_POINTS:
        raise ValueError(f"the selection must be a list of at most {MAX_POINTS} items")
    if value.get("select_type") == "H5S_SEL_HYPERSLABS":
        volumes = sum(starmap(_volume, selection))
        if len(selection) > 1 and volumes > MAX_POINTS:
            raise ValueError(f"several blocks can have at most {MAX_POINTS} elements in total")
    elif any(not 0 < len(point) <= MAX_RANK or min(point) < 0 for point in selection):
        raise ValueError("each point needs 1 to 32 non-negative coordinates")


def _check_dict(selection: dict[str, Any]) -> None:
    """Check h5json's form of selections with steps or lists of indices, which HDF5 regions do not have."""
    shape, slices = selection["shape"], selection.get("slices", [])
    if not isinstance(shape, list) or len(shape) > MAX_RANK or any(not 0 <= dim < 2**63 for dim in shape):
        raise ValueError("the shape of a selection must be a list of extents")
    if len(slices) > MAX_RANK or any(len(one.get("values", ())) > MAX_POINTS for one in slices):
        raise ValueError(f"a selection can have {MAX_RANK} dimensions and {MAX_POINTS} indices in each")


def _volume(start: list[int], end: list[int]) -> int:
    pairs = list(zip(start, end, strict=True))
    if not 0 < len(pairs) <= MAX_RANK or any(not 0 <= low <= high < 2**63 for low, high in pairs):
        raise ValueError("a block needs a start and an end that is not before it")
    return prod(high - low + 1 for low, high in pairs)
