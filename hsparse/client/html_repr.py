"""HTML representations of datasets for notebooks; each has a bounded size and needs at most one request."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from contextlib import suppress
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import HsparseError

MAX_CHARACTERS = 200
"""The maximum number of characters of a name or a value; the rest is not shown."""
SIDE = 64
"""The maximum number of bins in each direction of the picture that shows the density of a sparse dataset."""
MAX_EXACT_ELEMENTS = 1 << 24
"""For larger datasets, the density is estimated: the server assumes that elements are evenly spread in each chunk."""
MOST_CHUNKS = 10_000
"""The maximum number of chunks that are counted for the picture of a dataset with more than `MAX_EXACT_ELEMENTS`."""
LINE = '<div style="font-family:monospace;white-space:pre;padding-left:{}em">{}</div>'


def dataset_html(dataset: Any) -> str:
    """Return HTML with the properties of a dataset and, if the dataset is sparse, a picture of its density."""
    facts = {
        "shape": "null" if dataset.is_null else dataset.shape,
        "grows to": dataset.maxshape if dataset.maxshape != dataset.shape else None,
        "type": dataset.dtype,
        "chunks": dataset.chunks,
        "fill value": dataset.fillvalue,
        "compression": dataset.compression,
    }
    lines = [f"<b>{html_text(type(dataset).__name__)} {html_text(dataset.name or dataset.id)}</b>"]
    lines += [
        f"{name:12}{html_text(value)}" for name, value in facts.items() if value is not None and str(value)
    ]
    text = "".join(LINE.format(0, line) for line in lines)
    if dataset.has_undefined and dataset.size and dataset.ndim:
        with suppress(HsparseError):  # the server may lack /density
            text += _density_html(dataset)
    return text


def _density_html(dataset: Any) -> str:
    """Return HTML with a picture of the density over the last two dimensions; sends one request."""
    shape = dataset.shape
    bins = [*shape[:-2], *(-(-length // SIDE) for length in shape[-2:])]
    cheap: dict[str, Any] = (
        {"approximate": 1, "Limit": MOST_CHUNKS} if dataset.size > MAX_EXACT_ELEMENTS else {}
    )
    path, widths = f"/datasets/{dataset.id}/density", str(bins).replace(" ", "")
    answer = dataset.connection.json("GET", path, bin=widths, **cheap)
    counts = np.asarray(answer["count"], float).reshape(answer["shape"][-2:])
    counts = np.atleast_2d(counts)
    shades = 255 - 255 * np.sqrt(counts / (counts.max() or 1))
    image = b64encode(_png(shades.astype(np.uint8))).decode()
    total = round(counts.sum())
    of = f" in the first {MOST_CHUNKS} chunks" if "marker" in answer else ""
    caption = f"{'defined':12}{total} of {dataset.size}, {total / dataset.size:.3g}{of}"
    style = "width:192px;height:192px;image-rendering:pixelated;border:1px solid"
    return f'{LINE.format(0, caption)}<img alt="density" style="{style}" src="data:image/png;base64,{image}">'


def _png(grey: NDArray[np.uint8]) -> bytes:
    """Return a grey image, an array of shape (height, width) and dtype uint8, in the file format PNG."""
    height, width = grey.shape
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(np.insert(grey, 0, 0, axis=1).tobytes())),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def html_text(value: Any) -> str:
    """Return a value as shortened and escaped text for HTML: the value may come from other users."""
    text = str(value)
    return escape(text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}...")
