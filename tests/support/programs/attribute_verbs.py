"""The verbs of programs for attributes."""

from __future__ import annotations

from typing import Any

from tests.support.programs.values import make_type, make_values, plain
from tests.support.programs.verb import changes, free_attributes, gist, reads, with_type


@changes
def set_attribute(
    lib: Any, file: Any, path: str, name: str, type: str, shape: tuple[int, ...], data: int
) -> None:
    dtype = make_type(lib, type)
    values = make_values(lib, dtype, shape, data)
    free_attributes(file, path, name).create(name, values, shape=None, dtype=dtype)


@changes
def assign_attribute(lib: Any, file: Any, path: str, name: str, value: Any) -> None:
    free_attributes(file, path, name)[name] = value


@changes
def empty_attribute(lib: Any, file: Any, path: str, name: str, type: str) -> None:
    free_attributes(file, path, name).create(name, lib.Empty(type))


@changes
def modify_attribute(
    lib: Any, file: Any, path: str, name: str, type: str, shape: tuple[int, ...], data: int
) -> None:
    dtype = make_type(lib, type)
    attributes = free_attributes(file, path, name)
    attributes[name] = make_values(lib, dtype, shape, data + 1)
    attributes.modify(name, make_values(lib, dtype, shape, data))


@changes
def replace_attribute(lib: Any, file: Any, path: str, name: str, value: Any) -> None:
    file[path].attrs[name] = value


@reads
def get_attribute(lib: Any, file: Any, path: str, name: str) -> Any:
    return with_type(lib, file[path].attrs[name])


@changes
def delete_attribute(lib: Any, file: Any, path: str, name: str) -> None:
    file.flush()
    del file[path].attrs[name]
    file.flush()


@reads
def attributes(lib: Any, file: Any, path: str) -> Any:
    attrs = file[path].attrs
    return {
        "names": sorted(attrs),
        "count": len(attrs),
        "in": "a" in attrs,
        "get": plain(lib, attrs.get("nosuch", 5)),
    }


@changes
def refer_in_attribute(lib: Any, file: Any, path: str, name: str, target: str) -> None:
    free_attributes(file, path, name)[name] = file[target].ref


@reads
def follow_attribute(lib: Any, file: Any, path: str, name: str) -> Any:
    value = file[path].attrs[name]
    return gist(lib, file[value]) if isinstance(value, lib.Reference) else type(value).__name__
