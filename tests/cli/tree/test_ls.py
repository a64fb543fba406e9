"""`hsparse ls` against a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.tree.conftest import Run


def test_folders(run: Run, made: str, folder: str) -> None:
    run("mkdir", "-p", f"{folder}/a/b")
    assert run("ls", folder) == [f"{folder}/a/", made]
    assert run("ls", "-r", folder) == [f"{folder}/a/", f"{folder}/a/b/", made]
    assert run("ls", f"{folder}/*.h5") == [made]
    assert "/home/" in run("ls")
    assert f"hsparse: There is no folder, domain or object {folder}/none." in run(
        "ls", f"{folder}/none", status=2
    )


def test_objects(run: Run, made: str) -> None:
    assert run("ls", made) == [f"{made}/dense", f"{made}/group"]
    names = ["far", "frames", "loop", "ref", "same", "soft", "type", "words"]
    inside = [f"{made}/group/{name}" for name in names]
    assert run("ls", f"{made}/group") == inside
    assert run("ls", f"{made}/dense") == [f"{made}/dense"]
    # the group is listed in itself, and not entered again
    assert run("ls", "-r", made) == [f"{made}/dense", f"{made}/group", *inside]
    assert run("ls", "-r", f"{made[:-2]}*") == [made, f"{made}/dense", f"{made}/group", *inside]


def test_long_lines_of_objects(run: Run, made: str) -> None:
    lines = {line.rpartition("/")[2]: line.rpartition(made)[0].split() for line in run("ls", "-rl", made)}
    assert lines["dense"] == ["dataset", "H5T_STD_I64LE", "{1000,", "200}"]
    assert lines["frames"] == ["dataset", "H5T_IEEE_F32LE", "{10/Inf,", "100}"]
    assert lines["words"] == ["dataset", "string", "{3}"]
    assert lines["ref"] == ["dataset", "reference(H5T_STD_REF_OBJ)", "{scalar}"]
    assert lines["group"] == ["group", "8", "links"]
    assert lines["type"] == ["datatype", "H5T_STD_I16LE"]
    assert lines["soft"] == ["soft", "link", "->", "/dense"]
    assert lines["far"] == ["external", "link", "->", "other.h5:/x"]


def test_long_lines_of_folders(run: Run, made: str, folder: str) -> None:
    run("mkdir", f"{folder}/a")
    first, second = (line.split() for line in run("ls", "-l", folder))
    assert (first[:3], first[-1]) == (["folder", "admin", "-"], f"{folder}/a/")
    assert (second[:2], second[-1]) == (["domain", "admin"], made)
    assert int(second[2]) > 1000
    human = run("ls", "-lH", f"{folder}/some*")[0].split()
    assert human[3] in ("KiB", "MiB")


def test_json_lines(run: Run, made: str, folder: str) -> None:
    (domain,) = map(json.loads, run("ls", "--json", folder))
    assert domain == {"path": made, "class": "domain"}
    (domain,) = map(json.loads, run("ls", "--json", "-l", folder))
    assert domain.keys() >= {"owner", "created", "lastModified", "total_size"}
    found = {one["path"].rpartition("/")[2]: one for one in map(json.loads, run("ls", "--json", "-rl", made))}
    assert found["dense"]["shape"]["dims"] == [1000, 200]
    assert found["same"]["id"] == found["dense"]["id"]
    assert (found["soft"]["class"], found["soft"]["h5path"]) == ("soft link", "/dense")


def test_links_to_deleted_objects_are_listed(run: Run, made: str, embedded_url: str) -> None:
    from_list = {
        one["path"]: one["id"] for one in map(json.loads, run("ls", "--json", f"{made}/group")) if "id" in one
    }
    code = "import hsparse, sys; hsparse.Connection(sys.argv[1], sys.argv[2]).json('DELETE', sys.argv[3])"
    id = from_list[f"{made}/group/words"]
    subprocess.run([sys.executable, "-c", code, embedded_url, made, f"/datasets/{id}"], check=True)
    line = next(line for line in run("ls", "-l", f"{made}/group") if line.endswith("words"))
    assert line.split()[:2] == ["dataset", "deleted"]


def test_a_reader_that_has_enough(embedded_url: str, made: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hsparse.cli.main", "ls", "-r", "/home", made, made, "--endpoint"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([*command, embedded_url], stdout=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdout is not None
        process.stdout.close()
    assert (process.returncode, (tmp_path / "log").read_text()) == (0, "")
