"""The verbs of programs for groups, links, references and committed types."""

from __future__ import annotations

from typing import Any

from tests.support.programs.values import make_type, plain
from tests.support.programs.verb import changes, gist, parent_of, plain_link, put, reads


@changes
def create_group(lib: Any, file: Any, path: str) -> Any:
    return file.create_group(path).name


@changes
def require_group(lib: Any, file: Any, path: str) -> Any:
    return file.require_group(path).name


@changes
def ordered_group(lib: Any, file: Any, path: str) -> Any:
    group = file.create_group(path, track_order=True)
    for name in ("z", "b", "y", "a"):
        group.create_group(name)
    return list(group)


@changes
def soft_link(lib: Any, file: Any, path: str, target: str) -> None:
    put(file, path, lib.SoftLink(target))


@changes
def external_link(lib: Any, file: Any, path: str, target: str, **name: str) -> None:
    put(file, path, lib.ExternalLink(name["file"], target))


@changes
def hard_link(lib: Any, file: Any, path: str, target: str) -> None:
    put(file, path, file[target])


@changes
def unlink(lib: Any, file: Any, path: str) -> None:
    file.flush()
    unlink_at_once(lib, file, path)
    file.flush()


@changes
def unlink_at_once(lib: Any, file: Any, path: str) -> None:
    parent, name = parent_of(file, path)
    del parent[name]


@reads
def keys(lib: Any, file: Any, path: str) -> Any:
    group = file[path]
    return {"keys": list(group), "count": len(group), "class": type(group).__name__}


@reads
def contains(lib: Any, file: Any, path: str) -> Any:
    parent, name = parent_of(file, path)
    return name in parent


@reads
def open_link(lib: Any, file: Any, path: str) -> Any:
    parent, name = parent_of(file, path)
    return gist(lib, parent[name])


@reads
def open_path(lib: Any, file: Any, path: str) -> Any:
    return gist(lib, file[path])


@reads
def get_link(lib: Any, file: Any, path: str) -> Any:
    parent, name = parent_of(file, path)
    return plain_link(parent.get(name, getlink=True))


@reads
def get_class(lib: Any, file: Any, path: str) -> Any:
    parent, name = parent_of(file, path)
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
    return [bool(item) and gist(lib, file[item]) for item in file[path][...]]


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
    return gist(lib, file[file[path][0]])


@changes
def commit_type(lib: Any, file: Any, path: str, type: str) -> None:
    put(file, path, make_type(lib, type))
