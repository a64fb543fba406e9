"""Servers of files in places, and requests to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings

DATA = np.arange(60_000, dtype="<i4").reshape(600, 100)


@contextmanager
def served(root: Path, *files: Path | str, **more: Any) -> Iterator[str]:
    """Run a server of these places whose store is at `root`; the value is its URL."""
    places = tuple(map(str, files))
    with embedded_server(load_settings(root=root, port=0, fsync=False, files=places, **more)) as url:
        yield url


def ask(url: str, path: str) -> Any:
    """Return the JSON of an answer, of an error its status and message."""
    try:
        with urlopen(url + path) as reply:
            return json.loads(reply.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())["error"]["message"]


def listed(url: str, folder: str) -> list[str]:
    """Return the names of what is in a folder."""
    return [one["name"].rpartition("/")[2] for one in ask(url, f"/domains?domain={folder}")["domains"]]
