"""Where jobs may read and write: below the places, and nowhere else whatever the URL looks like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hsparse.errors import BadRequest, Forbidden, Misconfigured
from hsparse.hdf5.jobs.job_queue import JobPlaces


def test_without_places_there_is_none() -> None:
    with pytest.raises(Forbidden, match="job_places"):
        JobPlaces(()).argument("s3://b/k", "ada", writes=False)


@pytest.mark.parametrize(
    "url",
    [
        "s3://lab/in/x.h5",
        "s3://lab/in/a/b.h5",
        "s3://all/x.h5",
        "s3://homes/ada/x.h5",
    ],
)
def test_objects_in_places(url: str) -> None:
    places = JobPlaces(("s3://lab/in/", "s3://all", "s3://homes/{user}"))
    for writes in (False, True):
        assert places.argument(url, "ada", writes=writes) == url


@pytest.mark.parametrize(
    "url",
    [
        "s3://lab/x.h5",
        "s3://lab/input/x.h5",
        "s3://LAB/in/x.h5",
        "s3://all-other/x.h5",
        "s3://homes/ben/x.h5",
        "s3://homes/{user}/x.h5",
        "file:///lab/in/x.h5",
    ],
)
def test_objects_elsewhere(url: str) -> None:
    places = JobPlaces(("s3://lab/in/", "s3://all", "s3://homes/{user}/"))
    with pytest.raises(Forbidden, match="none of the places"):
        places.argument(url, "ada", writes=False)


@pytest.mark.parametrize("entry", ["s3://lab", "s3://lab/", "s3://lab/db/", "s3://lab/DB/x"])
def test_a_place_has_none_of_the_servers_objects(entry: str) -> None:
    assert JobPlaces((entry,), ("other",)).entries
    with pytest.raises(Misconfigured, match="another place"):
        JobPlaces((entry,), ("other", "lab"))


def test_a_place_has_nothing_of_the_root_directory(tmp_path: Path) -> None:
    (tmp_path / "to-root").symlink_to(tmp_path / "root")
    for entry in ("", "/root", "/root/home", "/to-root/x"):
        with pytest.raises(Misconfigured, match="another place"):
            JobPlaces((f"file://{tmp_path}{entry}",), (), f"{tmp_path}/root")
    places = JobPlaces((f"file://{tmp_path}/{{user}}",), (), f"{tmp_path}/root")
    assert places.folders("ada") == (f"{tmp_path}/ada/",)
    assert places.folders("root") == ()


def test_records_in_a_served_bucket_are_no_files() -> None:
    places = JobPlaces(("s3://lab/{user}", "s3://lab/home"), ("lab",))
    for name, url, right in (
        ("ada", "s3://lab/ada/x.h5", True),
        ("ada", "s3://lab/home/ben/.domain.json", False),
        ("db", "s3://lab/db/0-0/d/0-0-0/0", False),
    ):
        if right:
            assert places.argument(url, name, writes=True) == url
            continue
        for writes in (False, True):
            with pytest.raises(Forbidden):
                places.argument(url, name, writes=writes)
    assert places.folders("db") == ("s3://lab/home/",)


def test_a_name_that_is_no_path_has_no_place_of_its_own() -> None:
    for name in ("a/b", "..", ""):
        with pytest.raises(Forbidden):
            JobPlaces(("s3://homes/{user}/",)).argument("s3://homes/a/b/x.h5", name, writes=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x.h5",
        "/data/x.h5",
        "http://host/x.h5",
        "s3://",
        "s3://lab",
        "s3://lab/",
        "s3:///x.h5",
        "s3://lab/in/",
        "s3://lab/in//x.h5",
        "s3://lab/in/../x.h5",
        "s3://lab/in/./x.h5",
        "s3://lab/in/a\nb",
        "s3://lab/in/a\0b",
        "s3://lab/in/" + "x" * 3000,
        "file://x.h5",
        "file://host/data/x.h5",
        "file:///",
        "file:///data/../x.h5",
    ],
)
def test_what_names_no_file(url: str) -> None:
    with pytest.raises(BadRequest):
        JobPlaces(("s3://lab/in/", "file:///data/")).argument(url, "ada", writes=False)


@pytest.mark.parametrize(
    "entry", ["", "data", "/data", "http://host/", "s3://", "file://data/", "file:///a/../b"]
)
def test_what_is_no_place(entry: str) -> None:
    with pytest.raises(Misconfigured, match="job_places"):
        JobPlaces((entry,))


def test_files_are_followed_to_where_they_are(tmp_path: Path) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    for folder in (place / "sub", outside):
        folder.mkdir(parents=True)
        (folder / "x.h5").write_bytes(b"")
    (tmp_path / "way").symlink_to(place)
    (place / "out.h5").symlink_to(outside / "x.h5")
    (place / "outfolder").symlink_to(outside)
    (place / "in.h5").symlink_to(place / "sub" / "x.h5")
    (place / "nothing.h5").symlink_to(place / "none.h5")
    places = JobPlaces((f"file://{tmp_path}/way/",))

    def argument(name: str, *, writes: bool) -> str:
        return places.argument(f"file://{tmp_path}/way/{name}", "ada", writes=writes)

    assert argument("sub/x.h5", writes=False) == str(place / "sub" / "x.h5")
    assert argument("in.h5", writes=False) == str(place / "sub" / "x.h5")
    assert argument("sub/new.h5", writes=True) == str(place / "sub" / "new.h5")
    for name in ("out.h5", "outfolder/x.h5"):
        for writes in (False, True):
            with pytest.raises(Forbidden, match="symbolic link"):
                argument(name, writes=writes)
    for name in ("in.h5", "nothing.h5"):
        with pytest.raises(Forbidden, match="symbolic link"):
            argument(name, writes=True)


def test_folders_are_arguments_of_a_command() -> None:
    places = JobPlaces(("s3://lab/in", "file:///data", "file:///homes/{user}/"))
    assert places.folders("ada") == ("s3://lab/in/", "/data/", "/homes/ada/")
    assert places.folders("../eve") == ("s3://lab/in/", "/data/")


@pytest.mark.parametrize("writes", [False, True])
def test_only_regular_files_are_read_and_written(tmp_path: Path, writes: bool) -> None:
    places = JobPlaces((f"file://{tmp_path}",))
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "folder.h5").mkdir()
    for name in ("pipe.h5", "folder.h5"):
        with pytest.raises(BadRequest, match="no regular file"):
            places.argument(f"file://{tmp_path}/{name}", "ada", writes=writes)
