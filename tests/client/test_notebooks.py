"""What notebooks ask of files, groups and datasets: HTML and completions, as IPython finds them."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import count

import matplotlib.image
import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.tree_text import MAX_OBJECTS
from hsparse.errors import NotFound

NUMBERS = count()
HOSTILE = '<img src=x onerror="alert(1)">&amp;\'"'
"""A name that must not become markup."""


@pytest.fixture
def file(embedded_url: str) -> Iterator[hsparse.File]:
    with hsparse.open(f"{embedded_url}/notebook-{next(NUMBERS)}.h5", "w") as made:
        assert isinstance(made, hsparse.File)
        made["X"] = sp.eye_array(100, 50, format="csr", dtype="f4")
        made["runs/1/frames"] = np.zeros((2, 3), "u2")
        made["newest"] = hsparse.SoftLink("/runs/1")
        yield made


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are sent from now on."""
    sent: list[str] = []
    exchange: Callable[..., object] = Connection._exchange

    def counted(self: Connection, method: str, target: str, *rest: object) -> object:
        sent.append(f"{method} {target}")
        return exchange(self, method, target, *rest)

    monkeypatch.setattr(Connection, "_exchange", counted)
    return sent


class Reader(HTMLParser):
    """Reads what a browser shows: the text, and the tags with their attributes."""

    def __init__(self, text: str | None) -> None:
        super().__init__()
        assert text is not None
        self.lines: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "div":
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        self.lines[-1] += data


def test_a_file_is_a_tree_of_two_requests(file: hsparse.File, requests: list[str]) -> None:
    lines = Reader(file._repr_html_()).lines
    assert len(requests) == 2
    assert lines == [
        f"File {file.filename} of {file.connection.url}",
        "X  (100, 50) float32, sparse",
        "newest -> /runs/1",
        "runs/",
        "1/",
        "frames  (2, 3) uint16",
    ]
    assert Reader(file["runs"]._repr_html_()).lines == ["Group /runs", "1/", "frames  (2, 3) uint16"]


def test_a_sparse_dataset_has_a_picture_of_its_density(file: hsparse.File, requests: list[str]) -> None:
    x = file["X"]
    requests.clear()
    shown = Reader(x._repr_html_())
    assert len(requests) == 1
    assert shown.lines[0] == "SparseDataset /X"
    assert shown.lines[-1] == "defined     50 of 5000, 0.01"
    (image,) = (attributes["src"] for tag, attributes in shown.tags if tag == "img")
    assert image is not None
    pixels = matplotlib.image.imread(
        io.BytesIO(base64.b64decode(image.removeprefix("data:image/png;base64,")))
    )
    assert pixels.shape == (50, 50)
    assert pixels[0, 0] < pixels[-1, 0] == 1  # the diagonal ends half way down


def test_of_a_large_dataset_chunks_are_counted_not_elements(file: hsparse.File, requests: list[str]) -> None:
    big = file.create_sparse("big", (1 << 20, 1 << 10), "f4", (1 << 16, 1 << 10))
    big[3, 5] = 7
    requests.clear()
    assert Reader(big._repr_html_()).lines[-1] == f"defined     1 of {1 << 30}, 9.31e-10"
    (request,) = requests
    assert "approximate=1" in request


@pytest.mark.parametrize("shape", [(7,), (3, 200, 300), (2, 0), ()])
def test_datasets_of_any_rank_are_shown(file: hsparse.File, shape: tuple[int, ...]) -> None:
    if shape:
        file.create_sparse("s", shape, "i4", tuple(max(1, one) for one in shape))
        pictures = [tag for tag, _ in Reader(file["s"]._repr_html_()).tags if tag == "img"]
        assert len(pictures) == int(0 not in shape)
    file["d"] = np.ones(shape)
    assert f"shape       {shape}" in Reader(file["d"]._repr_html_()).lines


def test_a_server_without_densities_is_no_error(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    x, send = file["X"], Connection.json

    def json(self: Connection, method: str, path: str, *body: object, **params: object) -> object:
        if path.endswith("/density") or method == "POST":
            raise NotFound("no such route")
        return send(self, method, path, *body, **params)

    monkeypatch.setattr(Connection, "json", json)
    assert "img" not in {tag for tag, _ in Reader(x._repr_html_()).tags}
    assert "X" in Reader(file._repr_html_()).lines


def test_hostile_names_are_text(embedded_url: str) -> None:
    name = HOSTILE.replace("/", "")
    with hsparse.open(f"{embedded_url}/notebook-{next(NUMBERS)}{name}.h5", "w") as file:
        file[name] = np.zeros(2, [(name, "i4")])
        file[f"{name}2"] = hsparse.SoftLink(name)
        file[f"text{name}"] = file.create_dataset("t", (1,), "T", fillvalue=name)
        texts = [file._repr_html_(), file[name]._repr_html_(), file["t"]._repr_html_()]
    for text in texts:
        shown = Reader(text)
        assert {tag for tag, _ in shown.tags} <= {"div", "b"}
        assert any(name in line for line in shown.lines)
        assert all(set(attributes) <= {"style"} for _, attributes in shown.tags)


def test_a_large_tree_is_cut(file: hsparse.File, requests: list[str]) -> None:
    with file.batch():
        for number in range(MAX_OBJECTS + 50):
            file.create_group(f"many/{number:04}{'x' * 300}")
    requests.clear()
    text = file._repr_html_()
    shown = Reader(text)
    assert len(requests) == 2
    assert shown.lines[-1] == f"... only {MAX_OBJECTS} are shown"
    assert len(shown.lines) == MAX_OBJECTS + 2
    assert text is not None
    assert len(text) < 100_000


def test_groups_that_contain_themselves_are_entered_once(file: hsparse.File) -> None:
    file["runs/self"] = file["runs"]
    lines = Reader(file._repr_html_()).lines
    assert [line for line in lines if re.match("self|runs", line)] == ["runs/", "self/"]


def test_keys_are_completed(embedded_url: str, file: hsparse.File, requests: list[str]) -> None:
    file.attrs.update({"title": "cells", "run": 7})
    requests.clear()
    assert file._ipython_key_completions_() == ["X", "newest", "runs"]
    assert sorted(file.attrs._ipython_key_completions_()) == ["run", "title"]
    assert len(requests) == 2
    folder = hsparse.open(embedded_url)
    assert isinstance(folder, hsparse.Folder)
    assert file.filename.strip("/") in folder._ipython_key_completions_()


def test_what_is_closed_has_its_text_alone(file: hsparse.File) -> None:
    x = file["X"]
    file.close()
    assert file._repr_html_() is None
    assert x._repr_html_() is None
