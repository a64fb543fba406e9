"""The verbs of programs for datasets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.programs.values import make_type, make_values, plain, plain_type
from tests.support.programs.verb import changes, free_attributes, put, reads, with_type


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
def assign(lib: Any, file: Any, path: str, value: Any) -> None:
    put(file, path, value)


@changes
def assign_path(lib: Any, file: Any, path: str, value: Any) -> None:
    file[path] = value


@changes
def write(lib: Any, file: Any, path: str, index: Any, type: str, shape: tuple[int, ...], data: int) -> None:
    file[path][index] = make_values(lib, make_type(lib, type), shape, data)
    if any(not isinstance(part, slice) for part in (index if isinstance(index, tuple) else (index,))):
        file.flush()


@changes
def write_at_once(
    lib: Any, file: Any, path: str, index: Any, type: str, shape: tuple[int, ...], data: int
) -> None:
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


@changes
def write_direct(lib: Any, file: Any, path: str, type: str, shape: tuple[int, ...], data: int) -> None:
    file[path].write_direct(make_values(lib, make_type(lib, type), shape, data))


@reads
def read(lib: Any, file: Any, path: str, index: Any) -> Any:
    return with_type(lib, file[path][index])


@reads
def read_field(lib: Any, file: Any, path: str, fields: Any, index: Any) -> Any:
    return plain(lib, file[path].fields(fields)[index])


@reads
def read_direct(lib: Any, file: Any, path: str, type: str, shape: tuple[int, ...]) -> Any:
    values = np.zeros(shape, type)
    file[path].read_direct(values)
    return plain(lib, values)


@reads
def read_as(lib: Any, file: Any, path: str, type: str, index: Any) -> Any:
    return with_type(lib, file[path].astype(type)[index])


@reads
def read_text(lib: Any, file: Any, path: str) -> Any:
    return plain(lib, file[path].asstr()[()])


@reads
def iterate(lib: Any, file: Any, path: str) -> Any:
    return [plain(lib, row) for row in file[path]]


@reads
def length(lib: Any, file: Any, path: str) -> Any:
    return len(file[path])


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


@changes
def resize_at_once(lib: Any, file: Any, path: str, shape: tuple[int, ...]) -> Any:
    file[path].resize(shape)
    file.flush()


@changes
def label_dimension(lib: Any, file: Any, path: str, axis: int, label: str) -> None:
    free_attributes(file, path, "DIMENSION_LABELS")
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


@changes
def create_of_type(lib: Any, file: Any, path: str, type: str, shape: tuple[int, ...]) -> None:
    file.create_dataset(path, shape, file[type])
