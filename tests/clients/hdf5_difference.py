"""How two HDF5 files differ, as h5py's low level sees them: types bit by bit, property lists, links and values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

ORDER = h5py.h5p.CRT_ORDER_TRACKED


def differences(first: Path, second: Path) -> list[str]:
    """Return what the second file has otherwise than the first: one `path: what` each, in the order of paths."""
    with h5py.File(first) as one, h5py.File(second) as other:
        return list(_Comparison(one, other).below("/"))


class _Comparison:
    """Walks two files along the links of the first; an object met again must be met again in both."""

    def __init__(self, one: h5py.File, other: h5py.File) -> None:
        self._files = (one, other)
        self._paths = {file: _first_paths(file) for file in self._files}
        self._seen: dict[Any, Any] = {}

    def below(self, path: str) -> Iterator[str]:
        """Compare the objects at a path, and all below it."""
        pair = [file[path] for file in self._files]
        met = [h5py.h5o.get_info(item.id).addr for item in pair]
        if met[0] in self._seen:
            if self._seen[met[0]] != met[1]:
                yield f"{path}: not the same object as elsewhere"
            return
        self._seen[met[0]] = met[1]
        if type(pair[0]) is not type(pair[1]):
            yield f"{path}: a {type(pair[1]).__name__}"
        else:
            yield from self._objects(path, *pair)

    def _objects(self, path: str, one: Any, other: Any) -> Iterator[str]:
        for name in sorted(set(one.attrs) | set(other.attrs)):
            yield from self._attributes(f"{path}@{name}", name, one, other)
        if isinstance(one, h5py.Dataset):
            yield from self._datasets(path, one, other)
        elif isinstance(one, h5py.Datatype):
            if not one.id.equal(other.id):
                yield f"{path}: type"
        else:
            if _creation_order(one) != _creation_order(other):
                yield f"{path}: creation order"
            elif _creation_order(one) and list(one) != list(other):
                yield f"{path}: order"
            for name in sorted(set(one) | set(other)):
                yield from self._links(f"{path.rstrip('/')}/{name}", name, one, other)

    def _links(self, path: str, name: str, one: Any, other: Any) -> Iterator[str]:
        links = [group.get(name, getlink=True) for group in (one, other)]
        if None in links:
            yield f"{path}: {'added' if links[0] is None else 'missing'}"
        elif _link_text(links[0]) != _link_text(links[1]):
            yield f"{path}: {_link_text(links[1])}"
        elif isinstance(links[0], h5py.HardLink):
            yield from self.below(path)

    def _attributes(self, path: str, name: str, one: Any, other: Any) -> Iterator[str]:
        if name not in one.attrs or name not in other.attrs:
            yield f"{path}: {'missing' if name in one.attrs else 'added'}"
            return
        pair = [item.attrs.get_id(name) for item in (one, other)]
        yield from _shapes(path, *pair)
        if _null(pair[0]) or _null(pair[1]):
            return
        values = [
            repr(self.plain(side, item.attrs[name]))
            for side, item in zip(self._files, (one, other), strict=True)
        ]
        if values[0] != values[1]:
            yield f"{path}: values"

    def _datasets(self, path: str, one: h5py.Dataset, other: h5py.Dataset) -> Iterator[str]:
        yield from _shapes(path, one.id, other.id)
        if one.maxshape != other.maxshape:
            yield f"{path}: maxshape"
        yield from _properties(path, one, other)
        if one.shape is None or one.shape != other.shape:
            return
        values = [item[()] for item in (one, other)]
        if _bytes(values[0]) == _bytes(values[1]) is not None:
            return
        plain = [self.plain(side, value) for side, value in zip(self._files, values, strict=True)]
        if repr(plain[0]) != repr(plain[1]):
            yield f"{path}: values"

    def plain(self, file: h5py.File, value: Any) -> Any:
        """Return a value as lists and plain values; a reference is what it points to in its file."""
        if isinstance(value, h5py.RegionReference):
            return self._region(file, value) if value else None
        if isinstance(value, h5py.Reference):
            return self._target(file, value) if value else None
        if isinstance(value, np.ndarray) and value.dtype.kind == "V" and value.dtype.names is None:
            return [bytes(part) for part in value.ravel()]
        if isinstance(value, np.ndarray):
            return [self.plain(file, part) for part in value] if value.ndim else self.plain(file, value[()])
        if isinstance(value, np.void) and value.dtype.names is None:
            return bytes(value)
        if isinstance(value, np.void):
            return [self.plain(file, value[name]) for name in value.dtype.names or ()]
        return value.item() if isinstance(value, np.generic) else value

    def _region(self, file: h5py.File, value: Any) -> Any:
        return [self._target(file, value), h5py.h5r.get_region(value, file.id).get_select_bounds()]

    def _target(self, file: h5py.File, value: Any) -> str:
        return self._paths[file][h5py.h5o.get_info(h5py.h5r.dereference(value, file.id)).addr]


def _first_paths(file: h5py.File) -> dict[Any, str]:
    """Return a path of each object by its address: the same one of the several it may have, in both files."""
    paths = {h5py.h5o.get_info(file.id).addr: "/"}
    file.visititems(lambda name, item: paths.setdefault(h5py.h5o.get_info(item.id).addr, name) and None)
    return paths


def _shapes(path: str, one: Any, other: Any) -> Iterator[str]:
    if one.get_type().committed() != other.get_type().committed():
        yield f"{path}: committed"
    yield from (f"{path}: {what}" for what in _type_differences(one.get_type(), other.get_type()))
    if _null(one) != _null(other) or one.shape != other.shape:
        yield f"{path}: extent"


def _type_differences(one: Any, other: Any) -> list[str]:
    """Return `type`, or less where it is only how text is encoded and padded or where the fields of compounds are."""
    if one.equal(other):
        return []
    if one.get_class() != other.get_class() or one.get_class() not in (h5py.h5t.STRING, h5py.h5t.COMPOUND):
        return ["type"]
    if one.get_class() == h5py.h5t.COMPOUND:
        return ["gaps" if _fields(one) == _fields(other) else "type"]
    if one.is_variable_str() or other.is_variable_str():
        return ["type"]
    found = {
        "length of text": one.get_size() != other.get_size(),
        "padding of text": one.get_strpad() != other.get_strpad(),
        "character set": one.get_cset() != other.get_cset(),
    }
    return [what for what, different in found.items() if different]


def _fields(compound: Any) -> list[tuple[bytes, Any]]:
    places = range(compound.get_nmembers())
    return [(compound.get_member_name(place), compound.get_member_type(place)) for place in places]


def _properties(path: str, one: h5py.Dataset, other: h5py.Dataset) -> Iterator[str]:
    lists = [item.id.get_create_plist() for item in (one, other)]
    if lists[0].get_layout() != lists[1].get_layout():
        yield f"{path}: layout"
    elif one.chunks != other.chunks:
        yield f"{path}: chunks"
    if _filters(lists[0]) != _filters(lists[1]):
        yield f"{path}: filters"
    if _fill_value(one) != _fill_value(other):
        yield f"{path}: fill value"


def _filters(plist: Any) -> list[Any]:
    """Return the filters' ids; with the level of gzip, as the parameters of others follow from type and chunk."""
    filters = [plist.get_filter(place) for place in range(plist.get_nfilters())]
    return [(code, values if code == h5py.h5z.FILTER_DEFLATE else ()) for code, _, values, _ in filters]


def _fill_value(dataset: h5py.Dataset) -> Any:
    """Return the fill value as bytes or text; without one it is zeros, in HDF5 as here."""
    if dataset.id.get_type().detect_class(h5py.h5t.VLEN) or dataset.dtype.hasobject:
        return repr(dataset.fillvalue)
    return np.asarray(dataset.fillvalue).tobytes()


def _bytes(value: Any) -> bytes | None:
    """Return a value's type and bytes, where its elements have all of theirs in them."""
    array = np.asarray(value)
    return None if array.dtype.hasobject else f"{array.dtype}".encode() + array.tobytes()


def _creation_order(group: h5py.Group) -> bool:
    return bool(group.id.get_create_plist().get_link_creation_order() & ORDER)


def _null(item: Any) -> bool:
    return bool(item.get_space().get_simple_extent_type() == h5py.h5s.NULL)


def _link_text(link: Any) -> str:
    if isinstance(link, h5py.SoftLink):
        return f"soft link to {link.path}"
    if isinstance(link, h5py.ExternalLink):
        return f"external link to {link.filename} {link.path}"
    return "hard link"
