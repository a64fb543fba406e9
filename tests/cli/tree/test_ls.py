"""Commands that show what a server or a store has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from hsparse import __version__
from hsparse.cli.tree.server_tree import filters_text, shape_text, size_text, time_text, type_text
from hsparse.client.acls import Acls
from hsparse.errors import Forbidden
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
    assert (run("ls", f"{made}/group"), run("ls", f"{made}/dense")) == (inside, [f"{made}/dense"])
    # the group is listed in itself, and not entered again
    assert run("ls", "-r", made) == [f"{made}/dense", f"{made}/group", *inside]
    assert run("ls", "-r", f"{made[:-2]}*") == [made, f"{made}/dense", f"{made}/group", *inside]


def test_long_lines_of_objects(run: Run, made: str) -> None:
    lines = {line.rpartition("/")[2]: line.rpartition(made)[0].split() for line in run("ls", "-rl", made)}
    assert lines["dense"] == ["dataset", "H5T_STD_I64LE", "{1000,", "200}"]
    assert lines["frames"] == ["dataset", "H5T_IEEE_F32LE", "{10/Inf,", "100}"]
    assert lines["words"] == ["dataset", "string", "{3}"]
    assert lines["ref"] == ["dataset", "reference(H5T_STD_REF_OBJ)", "{scalar}"]
    assert (lines["group"], lines["type"]) == (["group", "8", "links"], ["datatype", "H5T_STD_I16LE"])
    assert lines["soft"] == ["soft", "link", "->", "/dense"]
    assert lines["far"] == ["external", "link", "->", "other.h5:/x"]


def test_long_lines_of_folders(run: Run, made: str, folder: str) -> None:
    run("mkdir", f"{folder}/a")
    first, second = (line.split() for line in run("ls", "-l", folder))
    assert (first[:3], first[-1]) == (["folder", "admin", "-"], f"{folder}/a/")
    assert (second[:2], second[-1]) == (["domain", "admin"], made)
    assert int(second[2]) > 1000
    assert run("ls", "-lH", f"{folder}/some*")[0].split()[3] in ("KiB", "MiB")


def test_json_lines(run: Run, made: str, folder: str) -> None:
    (domain,) = map(json.loads, run("ls", "--json", folder))
    assert domain == {"path": made, "class": "domain"}
    (domain,) = map(json.loads, run("ls", "--json", "-l", folder))
    assert domain.keys() >= {"owner", "created", "lastModified", "total_size"}
    found = {one["path"].rpartition("/")[2]: one for one in map(json.loads, run("ls", "--json", "-rl", made))}
    assert (found["dense"]["shape"]["dims"], found["same"]["id"]) == ([1000, 200], found["dense"]["id"])
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


def facts_of(lines: list[str]) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_server(run: Run) -> None:
    found = facts_of(run("info"))
    assert (found["name"], found["user"], found["admin"]) == ("hsparse", "admin", "yes")
    (line,) = run("info", "--json")
    assert json.loads(line)["version"] == __version__


def test_folders_and_domains(run: Run, made: str, folder: str) -> None:
    found = facts_of(run("info", folder))
    assert (found["class"], found["owner"]) == ("folder", "admin")
    found = facts_of(run("info", "-H", made))
    assert (found["class"], found["groups"], found["datasets"]) == ("domain", "2", "4")
    assert found["bytes"].endswith("KiB")
    (item,) = map(json.loads, run("info", "--json", made))
    assert item["bytes"] == item["metadata_bytes"] + item["chunk_bytes"] > 0


def test_datasets(run: Run, made: str) -> None:
    dense, sparse = (facts_of(run("info", f"{made}/{path}")) for path in ("dense", "group/frames"))
    assert (dense["type"], dense["shape"], dense["filters"]) == ("H5T_STD_I64LE", "{1000, 200}", "gzip=4")
    assert "defined" not in dense
    assert (sparse["defined"], sparse["chunks"], sparse["chunk"]) == ("2", "2", "[5, 50]")
    assert (sparse["shape"], sparse["layout"]) == ("{10/Inf, 100}", "H5D_STRUCT_CHUNK H5D_SPARSE_DATA")
    assert int(sparse["bytes"]) > 0


def test_other_objects_and_patterns(run: Run, made: str) -> None:
    assert facts_of(run("info", f"{made}/group"))["links"] == "8"
    assert facts_of(run("info", f"{made}/group/type"))["type"] == "H5T_STD_I16LE"
    items = [json.loads(line) for line in run("info", "--json", f"{made}/group/*")]
    kinds = "external link, dataset, group, dataset, dataset, soft link, datatype, dataset"
    assert ", ".join(item["class"] for item in items) == kinds
    assert len([line for line in run("info", f"{made}/*") if not line]) == 1


def test_folders_take_what_is_in_them(run: Run, made: str) -> None:
    folder = made.rpartition("/")[0]
    lines = [json.loads(line) for line in run("du", "--json", folder)]
    assert (lines[-1]["path"], lines[-1]["kind"]) == (folder, "folder")
    domains = [one for one in lines if one["kind"] == "domain"]
    assert made in [one["path"] for one in domains]
    assert lines[-1]["bytes"] == sum(one["bytes"] for one in domains) > 0
    assert run("du", "-s", folder) == [f"{lines[-1]['bytes']:>12} {folder}/"]
    (own,) = run("du", "--json", made)
    assert json.loads(own) in domains


def test_an_empty_folder_and_a_missing_one(run: Run, folder: str) -> None:
    assert run("du", "-H", folder) == [f"{'0 B':>12} {folder}/"]
    (line,) = run("du", f"{folder}/none", status=2)
    assert f"{folder}/none" in line


ALL = "create,read,update,delete,readACL,updateACL"


def test_rights_are_shown_and_set(run: Run, made: str) -> None:
    assert [line.split() for line in run("acl", made) if line.startswith("admin")] == [["admin", ALL]]
    assert run("acl", made, "bob", "read,update")[0].split() == ["bob", "read,update"]
    assert run("acl", made, "bob", "read")[0].split() == ["bob", "read"]
    assert ["bob", "read"] in [line.split() for line in run("acl", made)]
    assert run("acl", made, "g:lab", "all")[0].split() == ["g:lab", ALL]
    assert run("acl", made, "bob", "none")[0].split() == ["bob", "none"]
    (line,) = run("acl", "--json", made, "g:lab")
    assert json.loads(line) == {"path": made, "user": "g:lab", "rights": ALL.split(",")}


def test_rights_of_a_whole_tree(
    run: Run, made: str, folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several places at a time; one that refuses does not hold up the others."""
    run("mkdir", "-p", f"{folder}/a/b")
    places = [f"{folder}/", f"{folder}/a/", f"{folder}/a/b/", made]
    both, put = Barrier(2, timeout=60), Acls.__setitem__

    def meet(self: Acls, name: str, rights: Iterable[str]) -> None:
        both.wait()
        put(self, name, rights)

    monkeypatch.setattr(Acls, "__setitem__", meet)
    assert [line.split() for line in run("acl", "-r", folder, "bob", "read")] == [
        [place, "bob", "read"] for place in places
    ]
    lines = run("acl", "-r", folder, "--json")
    assert {json.loads(line)["path"] for line in lines} == {place.rstrip("/") for place in places}
    run("acl", made, "--remove", "bob")
    assert [line.split()[0] for line in run("acl", "-r", folder, "bob")] == places[:3]
    run("acl", "-r", folder, "--remove", "bob")
    assert run("acl", "-r", folder, "bob") == []

    def refuse(self: Acls, name: str, rights: Iterable[str]) -> None:
        if self._connection.domain == f"{folder}/a":
            raise Forbidden("no")
        put(self, name, rights)

    monkeypatch.setattr(Acls, "__setitem__", refuse)
    assert run("acl", "-r", folder, "bob", "read", status=1) == [f"hsparse: {folder}/a/: no"]
    assert [line.split()[0] for line in run("acl", "-r", folder, "bob")] == [places[0], *places[2:]]


def test_an_entry_is_removed(run: Run, made: str) -> None:
    run("acl", made, "bob", "none")
    assert "bob" not in {line.split()[0] for line in run("acl", made, "--remove", "bob")}
    (line,) = run("acl", made, "--remove", "bob", status=2)
    assert "no ACL entry for 'bob'" in line
    (line,) = run("acl", made, "eve", "--remove", "bob", status=2)
    assert "cannot be combined" in line


def test_folders_have_rights(run: Run, folder: str) -> None:
    assert run("acl", f"{folder}/", "default", "read")[0].split() == ["default", "read"]


@pytest.mark.parametrize(
    ("words", "said"), [(("bob", "write"), "'write' is not a right"), (("eve",), "no ACL entry for 'eve'")]
)
def test_what_is_wrong_is_said(run: Run, made: str, words: tuple[str, ...], said: str) -> None:
    (line,) = run("acl", made, *words, status=2)
    assert said in line


def test_an_object_has_none(run: Run, made: str) -> None:
    (line,) = run("acl", f"{made}/nothing", status=2)
    assert "nothing" in line


def test_a_quota_is_set_shown_and_removed(run: Run, folder: str) -> None:
    assert run("quota", folder) == [f"{folder}/ has no quota of its own"]
    assert run("quota", folder, "1MiB") == [f"{folder}/ uses 0 of 1048576 bytes"]
    (line,) = run("quota", "--json", f"{folder}/")
    shown = json.loads(line)
    assert {**shown, "counted": None} == {"path": folder, "bytes": 1048576, "used": 0, "counted": None}
    assert run("quota", folder, "none") == [f"{folder}/ has no quota of its own"]


def test_no_size(run: Run, made: str, folder: str) -> None:
    (said,) = run("quota", folder, "much", status=2)
    assert said.endswith(
        "'much' is not a size; write a size like 1000000, 512MiB or 1GB; or none, for no quota."
    )
    assert run("quota", made, status=2) == [f"hsparse: {made} is a domain: only folders have quotas."]
    (said,) = run("quota", "/home/ann", "1MiB", status=2)
    assert said.startswith(
        "hsparse: /home/ann does not exist: a home folder is made by its user's first request"
    )


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 61, "2048.0 PiB"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    assert (size_text(nbytes, human=True), size_text(nbytes, human=False)) == (text, str(nbytes))


def test_times_are_utc() -> None:
    assert time_text(1_700_000_000.9) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"class": "H5S_NULL"}, "{null}"),
        ({"class": "H5S_SCALAR"}, "{scalar}"),
        ({"class": "H5S_SIMPLE", "dims": [3, 4]}, "{3, 4}"),
        ({"class": "H5S_SIMPLE", "dims": [3, 4, 5], "maxdims": [3, 0, 9]}, "{3, 4/Inf, 5/9}"),
        ({"class": "H5S_SIMPLE", "dims": [3], "maxdims": ["H5S_UNLIMITED"]}, "{3/Inf}"),
    ],
)
def test_shapes(shape: dict[str, Any], text: str) -> None:
    assert shape_text(shape) == text


INTEGER = {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("H5T_STD_I8LE", "H5T_STD_I8LE"),
        (INTEGER, "H5T_STD_I8LE"),
        ({"class": "H5T_STRING", "length": 5}, "string(5)"),
        ({"class": "H5T_STRING", "length": "H5T_VARIABLE"}, "string"),
        ({"class": "H5T_VLEN", "base": INTEGER}, "vlen(H5T_STD_I8LE)"),
        ({"class": "H5T_ARRAY", "base": INTEGER, "dims": [2, 3]}, "H5T_STD_I8LE[2, 3]"),
        ({"class": "H5T_ENUM", "base": INTEGER, "mapping": {"A": 0}}, "enum(H5T_STD_I8LE)"),
        ({"class": "H5T_OPAQUE", "size": 7}, "opaque(7)"),
        ({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}, "reference(H5T_STD_REF_OBJ)"),
        ({"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": INTEGER}]}, "{a: H5T_STD_I8LE}"),
    ],
)
def test_types(item: Any, text: str) -> None:
    assert type_text(item) == text


def test_filters() -> None:
    filters = [
        {"class": "H5Z_FILTER_SHUFFLE", "id": 2},
        {"class": "H5Z_FILTER_DEFLATE", "name": "gzip", "level": 4, "section": "H5_SECTION_FIXED"},
        "lzf",
    ]
    assert filters_text(filters) == "shuffle, gzip=4 (fixed), lzf"
