"""One turn of the workload `frames`: opens a stack of images, reads single frames, then all, and prints the times.

The argument is JSON: `side`, `place` (a URL or a file), `path` of the dataset, `frames` to read one by one. The script
is run by the Python of each side, so it imports only that side's library and numpy.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from typing import Any


def opened(side: str, place: str, path: str) -> Any:
    """Return the dataset as an array that reads when indexed."""
    if side == "Tiled":
        from tiled.client import from_uri  # type: ignore[import-not-found,unused-ignore]  # in Tiled's environment

        node = from_uri(place)
        for name in path.split("/"):
            node = node[name]
        return node
    if side == "h5py":
        import h5py

        return h5py.File(place, "r")[path]
    import hsparse

    return hsparse.open(place)[path]


def turn(side: str, place: str, path: str, frames: list[int]) -> dict[str, float]:
    """Return the median seconds to read one frame, the seconds to read all frames, and a checksum of all frames."""
    dataset = opened(side, place, path)
    seconds = []
    for frame in frames:
        began = time.perf_counter()
        dataset[frame]
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    values = dataset[:]
    whole = time.perf_counter() - began
    return {"frame": sorted(seconds)[len(seconds) // 2], "all": whole, "sum": zlib.crc32(values.tobytes())}


if __name__ == "__main__":
    print(json.dumps(turn(**json.loads(sys.argv[1]))))
