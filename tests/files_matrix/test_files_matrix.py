"""Files of every maker go in by `hsparse import`, and come out of every exit as h5py has them, or as `KNOWN` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.config import load_settings
from tests.files_matrix.exceptions import KNOWN, SERVED
from tests.files_matrix.exits import EXITS, Imported
from tests.files_matrix.makers import MAKERS

LEFT_BEHIND = 3
"""The status of an import that could not carry all, and has said what."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every file, by the name of its maker."""
    folder = tmp_path_factory.mktemp("files")
    found = {name: folder / f"file-{number}.h5" for number, name in enumerate(MAKERS)}
    for name, path in found.items():
        MAKERS[name](path)
    return found


@pytest.fixture(scope="module")
def served(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Imported]]:
    """Every file, served where it is."""
    root, out = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("out")
    folder = next(iter(made.values())).parent
    with embedded_server(load_settings(root=root, port=0, fsync=False, files=(f"data={folder}",))) as url:
        yield [Imported(name, path, url, f"/data/{path.name}", out) for name, path in made.items()]


@pytest.fixture(scope="module")
def imported(
    embedded_url: str, made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Imported]:
    """Every file, in a domain of its own."""
    folder = tmp_path_factory.mktemp("out")
    found = []
    for number, (name, path) in enumerate(made.items()):
        domain = f"/home/admin/matrix-{number}.h5"
        status = main(
            ["import", str(path), domain, "--endpoint", embedded_url, "--progress", "none", "--quiet"]
        )
        assert status in (0, LEFT_BEHIND), name
        found.append(Imported(name, path, embedded_url, domain, folder))
    return found


def test_there_are_files_of_every_maker() -> None:
    assert len(MAKERS) >= 40


@pytest.mark.parametrize("exit", EXITS)
def test_what_is_served_is_what_is_in_the_file(exit: str, served: list[Imported]) -> None:
    found = [f"{one.name}: {difference}" for one in served for difference in EXITS[exit](one)]
    unknown = [one for one in found if not any(known.explains(exit, one) for known in (*KNOWN, *SERVED))]
    assert not unknown, "\n".join(["not as in the file:", *unknown])


@pytest.mark.parametrize("exit", EXITS)
def test_what_comes_out_is_what_went_in(exit: str, imported: list[Imported]) -> None:
    found = [f"{one.name}: {difference}" for one in imported for difference in EXITS[exit](one)]
    unknown = [one for one in found if not any(known.explains(exit, one) for known in KNOWN)]
    assert not unknown, "\n".join(["not as in the file:", *unknown])
    outdated = [
        known.reason
        for known in KNOWN
        if exit in known.exits and not any(known.explains(exit, one) for one in found)
    ]
    assert not outdated, "\n".join(["no difference any more; take it off the list:", *outdated])


def test_the_docs_print_the_list() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limitations.md").read_text()
    head = "| where | what differs from the file |\n| --- | --- |\n"
    listed = page.partition(head)[2].partition("\n\n")[0].strip().splitlines()
    assert listed == [known.row for known in KNOWN]
