"""What the steps of programs mean: one function for each verb, the same for h5py and for h5pyd.

Each takes the library and an open file, and returns what the caller would see, as `plain` makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.support.programs.values import plain, plain_type

Verb = Callable[..., Any]
VERBS: dict[str, Verb] = {}
CHANGES: set[str] = set()
DEPTH = 5
"""How deep `look` goes: hard links may make circles."""


def reads(verb: Verb) -> Verb:
    VERBS[verb.__name__] = verb
    return verb


def changes(verb: Verb) -> Verb:
    CHANGES.add(verb.__name__)
    return reads(verb)


def free_attributes(file: Any, path: str, name: str) -> Any:
    """Return an object's attributes, without one of a name: h5pyd 1.0.0 does not replace what was flushed."""
    attributes = file[path].attrs
    if name in attributes:
        file.flush()
        del attributes[name]
        file.flush()
    return attributes


def _attribute_of(lib: Any, item: Any, name: str) -> Any:
    return with_type(lib, item.attrs[name])


def _member_of(lib: Any, item: Any, name: str, depth: int) -> Any:
    return _look(lib, item[name], depth)


def attempt(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the class and text of the error that it ends with."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        # whatever a library raises is an outcome, to be compared with the other's
        return Failure(type(error).__name__, f"{error} {error.__context__ or ''}")


class Failure:
    """An error as an outcome."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failure) and other.kind == self.kind

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.kind}({self.text!r})"


@reads
def flush(lib: Any, file: Any) -> None:
    file.flush()


@reads
def look(lib: Any, file: Any) -> Any:
    """Return everything in a file: links, objects, attributes and values."""
    return _look(lib, file["/"], 0)


def _look(lib: Any, item: Any, depth: int) -> Any:
    seen: dict[str, Any] = {"class": type(item).__name__, "attributes": {}}
    for name in sorted(item.attrs):
        seen["attributes"][name] = attempt(partial(_attribute_of, lib, item, name))
    if hasattr(item, "resize"):
        seen |= {"shape": item.shape, "type": plain_type(lib, item.dtype)}
        seen["values"] = attempt(lambda: plain(lib, item[()]))
    elif hasattr(item, "keys"):
        seen["links"] = {name: plain_link(item.get(name, getlink=True)) for name in item}
        seen["members"] = {
            name: attempt(partial(_member_of, lib, item, name, depth + 1))
            for name, link in seen["links"].items()
            if link == ["HardLink"] and depth < DEPTH
        }
    else:
        seen["type"] = plain_type(lib, item.dtype)
    return seen


def gist(lib: Any, item: Any) -> Any:
    kind = type(item).__name__
    if hasattr(item, "resize"):
        return [kind, item.shape, plain(lib, item[()])]
    return [kind, sorted(item) if hasattr(item, "keys") else plain_type(lib, item.dtype)]


def parent_of(file: Any, path: str) -> tuple[Any, str]:
    """Return the group of a path, and the name in it: h5pyd has some verbs for names alone."""
    parent, _, name = path.rpartition("/")
    return file[parent or "/"], name


def put(file: Any, path: str, value: Any) -> None:
    parent, name = parent_of(file, path)
    parent[name] = value


def plain_link(link: Any) -> Any:
    if link is None:
        return None
    return [
        type(link).__name__,
        *(getattr(link, part) for part in ("path", "filename") if hasattr(link, part)),
    ]


def with_type(lib: Any, value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    described = type(value).__name__ if dtype is None else plain_type(lib, dtype)
    return {"type": described, "shape": getattr(value, "shape", ()), "value": plain(lib, value)}
