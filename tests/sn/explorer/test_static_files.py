"""The built files: the page names files that are there, and each is what its media type says."""

from __future__ import annotations

import re

import pytest

from hsparse.errors import NotFound
from hsparse.explorer.handlers import DOCS, NAMED, PAGE, static_file, static_files


@pytest.mark.parametrize("name", [PAGE, DOCS])
def test_the_pages_name_files_that_are_there(name: str) -> None:
    page = static_file(name).body().decode()
    named = re.findall(r'(?:src|href)="\./explorer/([^"]+)"', page)
    assert len(named) >= 2
    assert {static_file(name).media.partition(";")[0] for name in named} == {"text/javascript", "text/css"}
    assert set(named) < set(static_files())


@pytest.mark.parametrize("name", [PAGE, DOCS])
def test_the_pages_have_nothing_that_their_policy_forbids(name: str) -> None:
    page = static_file(name).body().decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=", page)
    assert not re.search(r'(?:src|href)="(?!\./explorer/|data:,)', page)


def test_scripts_compile_nothing_from_text() -> None:
    for name, file in static_files().items():
        # Swagger UI has a way without it.
        if name.endswith(".js") and not name.startswith("docs-"):
            assert not re.search(rb"new Function\(|(?<![.\w])eval\(", file.body()), name


def test_the_first_view_is_small() -> None:
    first = [file for name, file in static_files().items() if name.startswith("index")]
    assert sum(len(file.compressed) for file in first) < 150_000
    assert sum(len(file.compressed) for file in static_files().values()) < 1_500_000


def test_names_change_with_the_content() -> None:
    assert all(re.search(r"-[\w-]{8}\.\w+$", name) for name in static_files() if name not in NAMED)


def test_another_name_is_not_found() -> None:
    for name in ("", "index.html.gz", "../static_files.py", "index-00000000.js"):
        with pytest.raises(NotFound):
            static_file(name)
