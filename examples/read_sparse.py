"""Read a sparse dataset straight from its objects with nothing but its map: `python read_sparse.py MAP BASE OUT.npz`.

MAP (a file or URL) is what GET /datasets/{id}/map answers, BASE the directory or public URL of the bucket. OUT.npz gets
`coords` (n, rank) and `values` (n,). Filters other than deflate, shuffle and fletcher32 are left to you.
"""

import json
import sys
import zlib
from pathlib import Path
from urllib.request import urlopen

import numpy as np


def fetch(place):
    return urlopen(place if "://" in place else Path(place).resolve().as_uri()).read()


def unfiltered(data, filters, mask):
    for one in reversed([one for place, one in enumerate(filters) if data and not mask >> place & 1]):
        if one["name"] == "shuffle":
            size, end = one["values"][0], len(data) - len(data) % one["values"][0]
            data = np.frombuffer(data[:end], np.uint8).reshape(size, -1).T.tobytes() + data[end:]
        else:
            data = {"deflate": zlib.decompress, "fletcher32": lambda data: data[:-4]}[one["name"]](data)
    return data


def coordinates(image, dims):
    """Return what an H5Sencode image selects of a chunk, (n, rank), in the order of its values."""
    image = image[7 + int.from_bytes(image[3:7], "little") :]
    kind, version = np.frombuffer(image[:8], "<u4").tolist()
    if kind in (0, 3):  # none or all
        return np.argwhere(np.full(dims, kind == 3))
    regular = kind == 2 and version > 1 and image[8] == 1
    head = (4, 16) if version == 1 else (8, 13) if (kind, version) == (2, 2) else (image[7 + kind], 8 + kind)
    numbers = np.frombuffer(image[head[1] + 4 + head[0] * (not regular) :], f"<u{head[0]}").astype(int)
    if kind == 1:  # points
        return numbers.reshape(-1, len(dims))
    found = np.full(dims, regular)
    for place, (start, stride, count, block) in enumerate(numbers.reshape(-1, 4) if regular else []):
        index, stride = np.indices(dims)[place] - start, max(stride, block)  # one block has any stride
        found &= (index >= 0) & (index // stride < count) & (index % stride < block)
    for box in [] if regular else numbers.reshape(-1, 2, len(dims)):
        found[tuple(slice(first, last + 1) for first, last in box.T)] = True
    return np.argwhere(found)


about, base = json.loads(fetch(sys.argv[1])), sys.argv[2]
dims, dtype = about["layout"]["dims"], np.dtype(about["dtype"])
coords, values = [np.zeros((0, len(dims)), int)], [np.zeros(0, dtype)]
for row in about["chunks"]:
    data, content = fetch(f"{base}/{row['key']}"), []
    for part, pipeline in zip(row["sections"], about["pipelines"], strict=True):
        stored = data[part["offset"] :][: part["size"]]
        content.append(unfiltered(stored, pipeline["filters"], part["filter_mask"]))
    coords.append(coordinates(content[0][:-4], dims) + row["offset"])  # behind the selection is its checksum
    values.append(np.frombuffer(content[1], dtype))
np.savez(sys.argv[3], coords=np.concatenate(coords), values=np.concatenate(values))
