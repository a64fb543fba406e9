"""What the steps of programs mean: one function for each verb, the same for h5py and for h5pyd.

Each takes the library and an open file, and returns what the caller would see, as `plain` makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hsparse.testing.plain_value import plain, plain_type
from hsparse.testing.program_type import make_type, make_values

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


@changes
def create_group(lib: Any, file: Any, path: str) -> Any:
    return file.create_group(path).name


@changes
def require_group(lib: Any, file: Any, path: str) -> Any:
    return file.require_group(path).name


@changes
def create_dataset(
    lib: Any,
    file: Any,
    path: str,
    type: str,
    shape: tuple[int, ...],
    data: int | None,
    fill: int | None,
    options: dict[str, Any],
) -> Any:
    dtype = make_type(lib, type)
    if data is not None:
        options = {**options, "data": make_values(lib, dtype, shape, data)}
    if fill is not None:
        options = {**options, "fillvalue": make_values(lib, dtype, (), fill)}
    return file.create_dataset(path, shape, dtype, **options).name


@changes
def require_dataset(lib: Any, file: Any, path: str, type: str, shape: tuple[int, ...]) -> Any:
    return file.require_dataset(path, shape, type).shape


@changes
def ordered_group(lib: Any, file: Any, path: str) -> Any:
    group = file.create_group(path, track_order=True)
    for name in ("z", "b", "y", "a"):
        group.create_group(name)
    return list(group)


@changes
def assign(lib: Any, file: Any, path: str, value: Any) -> None:
    _put(file, path, value)


@changes
def assign_path(lib: Any, file: Any, path: str, value: Any) -> None:
    file[path] = value


@changes
def write(lib: Any, file: Any, path: str, index: Any, type: str, shape: tuple[int, ...], data: int) -> None:
    file[path][index] = make_values(lib, make_type(lib, type), shape, data)


@changes
def write_field(
    lib: Any, file: Any, path: str, index: Any, type: str, shape: tuple[int, ...], field: str, data: int
) -> None:
    write_field_at_once(lib, file, path, index, type, shape, field, data)
    file.flush()


@changes
def write_field_at_once(
    lib: Any, file: Any, path: str, index: Any, type: str, shape: tuple[int, ...], field: str, data: int
) -> None:
    values = make_values(lib, make_type(lib, type)[field], shape, data)
    places = index if isinstance(index, tuple) else (index,)
    file[path][(field, *places)] = values


@reads
def read(lib: Any, file: Any, path: str, index: Any) -> Any:
    return _with_type(lib, file[path][index])


@reads
def read_field(lib: Any, file: Any, path: str, fields: Any, index: Any) -> Any:
    return plain(lib, file[path].fields(fields)[index])


@reads
def read_direct(lib: Any, file: Any, path: str, type: str, shape: tuple[int, ...]) -> Any:
    values = np.zeros(shape, type)
    file[path].read_direct(values)
    return plain(lib, values)


@changes
def write_direct(lib: Any, file: Any, path: str, type: str, shape: tuple[int, ...], data: int) -> None:
    file[path].write_direct(make_values(lib, make_type(lib, type), shape, data))


@changes
def label_dimension(lib: Any, file: Any, path: str, axis: int, label: str) -> None:
    file[path].dims[axis].label = label


@changes
def scale(lib: Any, file: Any, path: str, scale: str, name: str) -> Any:
    file[scale].make_scale(name)
    file[path].dims[0].attach_scale(file[scale])
    return file[scale].is_scale


@reads
def dimensions(lib: Any, file: Any, path: str) -> Any:
    found = file[path].dims
    return [[found[axis].label, len(found[axis]), list(found[axis].keys())] for axis in range(len(found))]


@reads
def read_as(lib: Any, file: Any, path: str, type: str, index: Any) -> Any:
    return _with_type(lib, file[path].astype(type)[index])


@reads
def read_text(lib: Any, file: Any, path: str) -> Any:
    return plain(lib, file[path].asstr()[()])


@reads
def iterate(lib: Any, file: Any, path: str) -> Any:
    return [plain(lib, row) for row in file[path]]


@reads
def length(lib: Any, file: Any, path: str) -> Any:
    return len(file[path])


@changes
def resize(lib: Any, file: Any, path: str, shape: tuple[int, ...]) -> Any:
    file.flush()
    file[path].resize(shape)
    file.flush()
    return file[path].shape


@changes
def resize_axis(lib: Any, file: Any, path: str, axis: int, size: int) -> Any:
    file.flush()
    file[path].resize(size, axis=axis)
    file.flush()
    return file[path].shape


@reads
def info(lib: Any, file: Any, path: str) -> Any:
    data = file[path]
    seen = {
        name: getattr(data, name)
        for name in ("shape", "maxshape", "size", "ndim", "chunks", "compression", "compression_opts")
    }
    seen |= {"shuffle": data.shuffle, "fletcher32": data.fletcher32}
    return {**seen, "type": plain_type(lib, data.dtype), "fillvalue": plain(lib, data.fillvalue)}


@changes
def set_attribute(
    lib: Any, file: Any, path: str, name: str, type: str, shape: tuple[int, ...], data: int
) -> None:
    dtype = make_type(lib, type)
    values = make_values(lib, dtype, shape, data)
    _free_attributes(file, path, name).create(name, values, shape=None, dtype=dtype)


@changes
def assign_attribute(lib: Any, file: Any, path: str, name: str, value: Any) -> None:
    _free_attributes(file, path, name)[name] = value


@changes
def empty_attribute(lib: Any, file: Any, path: str, name: str, type: str) -> None:
    _free_attributes(file, path, name).create(name, lib.Empty(type))


@changes
def modify_attribute(
    lib: Any, file: Any, path: str, name: str, type: str, shape: tuple[int, ...], data: int
) -> None:
    dtype = make_type(lib, type)
    attributes = _free_attributes(file, path, name)
    attributes[name] = make_values(lib, dtype, shape, data + 1)
    attributes.modify(name, make_values(lib, dtype, shape, data))


@changes
def replace_attribute(lib: Any, file: Any, path: str, name: str, value: Any) -> None:
    file[path].attrs[name] = value


@reads
def get_attribute(lib: Any, file: Any, path: str, name: str) -> Any:
    return _with_type(lib, file[path].attrs[name])


@changes
def delete_attribute(lib: Any, file: Any, path: str, name: str) -> None:
    file.flush()
    del file[path].attrs[name]
    file.flush()


@reads
def attributes(lib: Any, file: Any, path: str) -> Any:
    attrs = file[path].attrs
    return {"names": sorted(attrs), "count": len(attrs), "in": "a" in attrs, "get": attrs.get("nosuch", 5)}


@changes
def soft_link(lib: Any, file: Any, path: str, target: str) -> None:
    _put(file, path, lib.SoftLink(target))


@changes
def external_link(lib: Any, file: Any, path: str, target: str, **name: str) -> None:
    _put(file, path, lib.ExternalLink(name["file"], target))


@changes
def hard_link(lib: Any, file: Any, path: str, target: str) -> None:
    _put(file, path, file[target])


@changes
def unlink(lib: Any, file: Any, path: str) -> None:
    file.flush()
    unlink_at_once(lib, file, path)
    file.flush()


@changes
def unlink_at_once(lib: Any, file: Any, path: str) -> None:
    parent, name = _parent(file, path)
    del parent[name]


@reads
def keys(lib: Any, file: Any, path: str) -> Any:
    group = file[path]
    return {"keys": list(group), "count": len(group), "class": type(group).__name__}


@reads
def contains(lib: Any, file: Any, path: str) -> Any:
    parent, name = _parent(file, path)
    return name in parent


@reads
def open_link(lib: Any, file: Any, path: str) -> Any:
    parent, name = _parent(file, path)
    return _gist(lib, parent[name])


@reads
def open_path(lib: Any, file: Any, path: str) -> Any:
    return _gist(lib, file[path])


@reads
def get_link(lib: Any, file: Any, path: str) -> Any:
    parent, name = _parent(file, path)
    return _plain_link(parent.get(name, getlink=True))


@reads
def get_class(lib: Any, file: Any, path: str) -> Any:
    parent, name = _parent(file, path)
    found = parent.get(name, getclass=True)
    return None if found is None else found.__name__


@reads
def visit(lib: Any, file: Any, path: str) -> Any:
    found: list[str] = []
    file[path].visititems(lambda name, item: found.append(name))
    return sorted(found)


@changes
def refer(lib: Any, file: Any, path: str, targets: list[str]) -> None:
    references = [file[target].ref for target in targets]
    kind = lib.special_dtype(ref=lib.Reference)
    data = file.create_dataset(path, (len(targets) + 1,), kind)
    for place, reference in enumerate(references):
        data[place] = reference


@reads
def follow(lib: Any, file: Any, path: str) -> Any:
    return [bool(item) and _gist(lib, file[item]) for item in file[path][...]]


@changes
def refer_to_regions(lib: Any, file: Any, path: str, target: str, indices: list[Any]) -> None:
    data = file.create_dataset(path, (len(indices),), lib.special_dtype(ref=lib.RegionReference))
    for place, index in enumerate(indices):
        data[place] = file[target].regionref[index]


@reads
def follow_regions(lib: Any, file: Any, path: str, target: str) -> Any:
    return [plain(lib, file[target][reference]) for reference in file[path][...]]


@reads
def open_region(lib: Any, file: Any, path: str) -> Any:
    return _gist(lib, file[file[path][0]])


@changes
def refer_in_attribute(lib: Any, file: Any, path: str, name: str, target: str) -> None:
    _free_attributes(file, path, name)[name] = file[target].ref


@reads
def follow_attribute(lib: Any, file: Any, path: str, name: str) -> Any:
    value = file[path].attrs[name]
    return _gist(lib, file[value]) if isinstance(value, lib.Reference) else type(value).__name__


@changes
def commit_type(lib: Any, file: Any, path: str, type: str) -> None:
    _put(file, path, make_type(lib, type))


@changes
def create_of_type(lib: Any, file: Any, path: str, type: str, shape: tuple[int, ...]) -> None:
    file.create_dataset(path, shape, file[type])


@changes
def resize_at_once(lib: Any, file: Any, path: str, shape: tuple[int, ...]) -> Any:
    file[path].resize(shape)
    file.flush()


@reads
def flush(lib: Any, file: Any) -> None:
    file.flush()


@reads
def look(lib: Any, file: Any) -> Any:
    """Return everything in a file: links, objects, attributes and values."""
    return _look(lib, file["/"], 0)


def _free_attributes(file: Any, path: str, name: str) -> Any:
    """Return an object's attributes, without one of a name: h5pyd 1.0.0 does not replace what was flushed."""
    attributes = file[path].attrs
    if name in attributes:
        file.flush()
        del attributes[name]
        file.flush()
    return attributes


def _parent(file: Any, path: str) -> tuple[Any, str]:
    """Return the group of a path, and the name in it: h5pyd has some verbs for names alone."""
    parent, _, name = path.rpartition("/")
    return file[parent or "/"], name


def _put(file: Any, path: str, value: Any) -> None:
    parent, name = _parent(file, path)
    parent[name] = value


def _look(lib: Any, item: Any, depth: int) -> Any:
    seen: dict[str, Any] = {"class": type(item).__name__, "attributes": {}}
    for name in sorted(item.attrs):
        seen["attributes"][name] = attempt(lambda name=name: _with_type(lib, item.attrs[name]))
    if hasattr(item, "resize"):
        seen |= {"shape": item.shape, "type": plain_type(lib, item.dtype)}
        seen["values"] = attempt(lambda: plain(lib, item[()]))
    elif hasattr(item, "keys"):
        seen["links"] = {name: _plain_link(item.get(name, getlink=True)) for name in item}
        seen["members"] = {
            name: attempt(lambda name=name: _look(lib, item[name], depth + 1))
            for name, link in seen["links"].items()
            if link == ["HardLink"] and depth < DEPTH
        }
    else:
        seen["type"] = plain_type(lib, item.dtype)
    return seen


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


def _gist(lib: Any, item: Any) -> Any:
    kind = type(item).__name__
    if hasattr(item, "resize"):
        return [kind, item.shape, plain(lib, item[()])]
    return [kind, sorted(item) if hasattr(item, "keys") else plain_type(lib, item.dtype)]


def _plain_link(link: Any) -> Any:
    if link is None:
        return None
    return [
        type(link).__name__,
        *(getattr(link, part) for part in ("path", "filename") if hasattr(link, part)),
    ]


def _with_type(lib: Any, value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    described = type(value).__name__ if dtype is None else plain_type(lib, dtype)
    return {"type": described, "shape": getattr(value, "shape", ()), "value": plain(lib, value)}
