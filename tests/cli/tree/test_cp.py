"""Commands that copy, move, make and remove domains, and paths and patterns of a server's tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier

import h5py
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hsparse.cli.main import main
from hsparse.cli.tree import rm, server_tree
from hsparse.cli.tree.server_tree import CONCURRENCY, Kind, ServerTree, normal_path
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.errors import BadRequest, Conflict, NotFound, StoreFailed
from hsparse.format.dataspace_message import NEWEST_REVISION
from hsparse.hdf5.importer.hdf5_import import Hdf5Import
from tests.cli.importer.domain_picture import KNOWN, differences, is_refused, picture_of
from tests.cli.importer.random_domain import DrawnDomain, domains, make_domain
from tests.cli.tree.conftest import Run, is_gone


def test_a_copy_has_all_of_its_source(run: Run, made: str, folder: str, embedded_url: str) -> None:
    target = f"{folder}/copy.h5"
    assert run("cp", made, target) == [f"copied {made} to {target}"]
    with Connection(embedded_url, made) as one, Connection(embedded_url, target) as other:
        assert one.json("GET", "/")["root"] != other.json("GET", "/")["root"]
        before, after = picture_of(one), picture_of(other)
        root = other.json("GET", f"/groups/{other.json('GET', '/')['root']}")
    assert len(before) == 7
    assert "importedFile" not in (root.get("creationProperties") or {})
    form = NEWEST_REVISION.value
    found = differences(before, after)
    assert [one for one in found if not any(known.explains(one, form, before) for known in KNOWN)] == []


def test_random_domains(embedded_url: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = f"{folder}/random.h5", f"{folder}/copy.h5"
    words = ["cp", source, target, "--endpoint", embedded_url]

    @settings(
        max_examples=6,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
        database=None,
        derandomize=True,
    )
    @given(domains())
    def copy(drawn: DrawnDomain) -> None:
        with Connection(embedded_url, source) as one, Connection(embedded_url, target) as other:
            make_domain(one, drawn)
            before = picture_of(one)
            form = NEWEST_REVISION.value
            if is_refused(before, form):
                assert main(words) == 2
                assert "which structured chunks cannot have" in capsys.readouterr().err
            else:
                assert main(words) == 0
                found = differences(before, picture_of(other))
                assert [
                    one for one in found if not any(known.explains(one, form, before) for known in KNOWN)
                ] == []
                other.json("DELETE", "/")
            one.json("DELETE", "/")

    copy()


def test_folders(run: Run, made: str, folder: str) -> None:
    run("mkdir", "-p", f"{folder}/a/b")
    run("cp", made, f"{folder}/a/b/")
    (said,) = run("cp", f"{folder}/a", f"{folder}/c", status=2)
    assert said.endswith(f"{folder}/a is a folder; copy it with its content by hsparse cp -r.")
    lines = [json.loads(line) for line in run("cp", "-r", "--json", f"{folder}/a", f"{folder}/c")]
    assert lines[-1] == {"action": "copied", "path": f"{folder}/a/b/some.h5", "to": f"{folder}/c/b/some.h5"}
    assert run("ls", "-r", f"{folder}/c") == [f"{folder}/c/b/", f"{folder}/c/b/some.h5"]
    (said,) = run("cp", "-r", f"{folder}/a", f"{folder}/a/b", status=2)
    assert "cannot go into itself" in said


def test_many_domains_of_a_folder_are_told_in_order(run: Run, made: str, folder: str) -> None:
    names = [f"run{number:02}.h5" for number in range(20)]
    run("mkdir", "-p", f"{folder}/many/sub")
    for name in names:
        run("cp", made, f"{folder}/many/{name}")
    run("cp", made, f"{folder}/many/sub/last.h5")
    copied = run("cp", "-r", f"{folder}/many", f"{folder}/copy")
    assert [line for line in copied if "copied" in line] == [
        f"copied {folder}/many/{name} to {folder}/copy/{name}" for name in (*names, "sub/last.h5")
    ]
    moved = run("mv", f"{folder}/copy", f"{folder}/moved")
    assert [line for line in moved if line.startswith("moved")] == [
        f"moved {folder}/copy/{name} to {folder}/moved/{name}" for name in (*names, "sub/last.h5")
    ]
    one, other = (run("ls", "-r", f"{folder}/{where}") for where in ("many", "moved"))
    assert [line.replace("/many/", "/moved/") for line in one] == other
    removed = run("rm", "-r", f"{folder}/moved")
    assert removed == [f"removed {folder}/moved/{name}" for name in (*names, "sub/last.h5", "sub/", "")]


def test_targets(run: Run, made: str, folder: str) -> None:
    (said,) = run("cp", made, made, status=2)
    assert "cannot go into itself" in said
    run("cp", made, f"{folder}/other.h5")
    (said,) = run("cp", made, f"{folder}/other.h5", status=2)
    assert said.endswith(
        f"exists already: choose another name, or delete {folder}/other.h5 by hsparse rm {folder}/other.h5"
    )
    for words in ((made, f"{folder}/none/"), (f"{folder}/*", f"{folder}/none")):
        (said,) = run("cp", *words, status=2)
        assert said.endswith(f"create the folder first: hsparse mkdir -p {folder}/none")
    run("cp", f"{made}/dense", f"{folder}/x", status=2)


def test_exact_paths_are_no_patterns_and_no_folders_to_put_it_in(run: Run, made: str, folder: str) -> None:
    odd, other = f"{folder}/[a]*.h5", f"{folder}/?.h5"
    run("cp", "--exact", made, odd)
    (said,) = run("cp", "--exact", made, folder, status=2)
    assert f"{folder} exists already" in said
    lines = run("cp", "--exact", "--progress", "json", odd, f"{folder}/copy.h5")
    last = next(json.loads(line) for line in reversed(lines) if line.startswith('{"done"'))
    assert last["done"] == last["total"] > 0
    run("mv", "--exact", odd, other)
    run("cp", "--exact", odd, f"{folder}/none.h5", status=2)
    run("cp", "--exact", made, other, f"{folder}/none.h5", status=2)
    assert run("ls", folder) == [other, f"{folder}/copy.h5", made]


def test_a_copy_that_fails_is_deleted(
    run: Run, made: str, folder: str, embedded_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Hdf5Import) -> None:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(Hdf5Import, "run", fail)
    assert run("cp", made, f"{folder}/copy.h5", status=2) == ["hsparse: The disk is full."]
    assert is_gone(embedded_url, f"{folder}/copy.h5")
    assert run("ls", folder) == [made]


def rights(connection: Connection) -> list[dict[str, object]]:
    """Return the ACLs of a domain, without where they were set."""
    acls = connection.json("GET", "/acls")["acls"]
    return [{name: value for name, value in acl.items() if name != "domain"} for acl in acls]


def test_a_domain_keeps_its_objects_and_its_acl(run: Run, made: str, folder: str, embedded_url: str) -> None:
    target = f"{folder}/moved.h5"
    with Connection(embedded_url, made) as one:
        root, before = one.json("GET", "/")["root"], picture_of(one)
        one.json("PUT", "/acls/ben", {"read": True, "update": True})
        acls = rights(one)
    assert run("mv", made, target) == [f"moved {made} to {target}"]
    assert is_gone(embedded_url, made)
    with Connection(embedded_url, target) as other:
        assert (other.json("GET", "/")["root"], rights(other)) == (root, acls)
        assert picture_of(other) == before


def test_folders_and_patterns(run: Run, made: str, folder: str, embedded_url: str) -> None:
    run("mkdir", "-p", f"{folder}/a/b")
    assert run("mv", f"{folder}/*.h5", f"{folder}/a/b") == [f"moved {made} to {folder}/a/b/some.h5"]
    run("mv", f"{folder}/a", f"{folder}/c")
    assert run("ls", "-r", folder) == [f"{folder}/c/", f"{folder}/c/b/", f"{folder}/c/b/some.h5"]
    (said,) = run("mv", f"{folder}/c", f"{folder}/c/b", status=2)
    assert "cannot go into itself" in said


def test_what_is_there_stays(run: Run, made: str, folder: str) -> None:
    run("cp", made, f"{folder}/other.h5")
    (said,) = run("mv", made, f"{folder}/other.h5", status=2)
    assert "exists already" in said
    assert run("ls", folder) == [f"{folder}/other.h5", made]


@pytest.mark.parametrize("step", ["create", "put", "delete_name"])
def test_stopped_anywhere_the_same_command_goes_on(
    run: Run, made: str, folder: str, embedded_url: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target = f"{folder}/moved.h5"
    with Connection(embedded_url, made) as one:
        before = picture_of(one)
    do = getattr(ServerTree, step)
    if step == "put":
        do = lambda *ignored: None  # noqa: E731

    def lose_the_answer(self: ServerTree, *words: object) -> None:
        if step == "create":
            do(self, *words)
        raise Unreachable("The server does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(ServerTree, step, lose_the_answer)
        run("mv", made, target, status=2)
    for path in (made, target):
        with Connection(embedded_url, path) as one:
            assert picture_of(one) == before
    assert run("mv", made, target) == [f"moved {made} to {target}"]
    with Connection(embedded_url, target) as one:
        assert picture_of(one) == before


def test_a_folder_that_stopped_halfway_says_how_to_go_on(
    run: Run, made: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("mkdir", f"{folder}/a")
    run("mv", made, f"{folder}/a")

    def fail(self: ServerTree, *words: object) -> None:
        raise Unreachable("The server does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(ServerTree, "delete_name", fail)
        (said,) = run("mv", f"{folder}/a", f"{folder}/b", status=2)
    assert said.endswith(f"The rest is still in {folder}/a; move it by hsparse mv '{folder}/a/*' {folder}/b")
    run("mv", f"{folder}/a/*", f"{folder}/b")
    assert run("ls", "-r", f"{folder}/b") == [f"{folder}/b/some.h5"]


def test_a_domain_deleted_then(run: Run, made: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    do = ServerTree.delete_name

    def too_late(self: ServerTree, *words: str) -> None:
        do(self, *words)
        do(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(ServerTree, "delete_name", too_late)
        (said,) = run("mv", made, f"{folder}/b.h5", status=2)
    assert "Another user deleted or moved" in said


def test_domains_by_a_pattern(run: Run, made: str, folder: str, embedded_url: str) -> None:
    run("cp", made, f"{folder}/tmp1.h5")
    run("cp", made, f"{folder}/tmp2.h5")
    assert run("rm", f"{folder}/tmp*") == [f"removed {folder}/tmp1.h5", f"removed {folder}/tmp2.h5"]
    assert is_gone(embedded_url, f"{folder}/tmp1.h5")
    assert run("ls", folder) == [made]


def test_folders_of_rm(run: Run, made: str, folder: str) -> None:
    run("mkdir", "-p", f"{folder}/a/b")
    run("cp", made, f"{folder}/a/b")
    (said,) = run("rm", f"{folder}/a", status=2)
    assert said == (
        f"hsparse: The folder {folder}/a is not empty: delete its content first, or delete both by hsparse rm -r."
    )
    gone = [json.loads(line)["path"] for line in run("rm", "-r", "--json", f"{folder}/a")]
    assert gone == [f"{folder}/a/b/some.h5", f"{folder}/a/b/", f"{folder}/a/"]
    run("mkdir", f"{folder}/empty")
    assert run("rm", f"{folder}/empty") == [f"removed {folder}/empty/"]


def test_nothing_is_deleted_if_something_is_missing_or_an_object(run: Run, made: str, folder: str) -> None:
    run("rm", made, f"{folder}/none.h5", status=2)
    (said,) = run("rm", made, f"{made}/dense", status=2)
    assert f"{made}/dense is a dataset in the domain {made}: name a folder or a domain." in said
    assert run("ls", folder) == [made]


def test_ctrl_c(
    run: Run,
    made: str,
    embedded_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*ignored: object) -> None:
        raise KeyboardInterrupt

    capsys.readouterr()  # of the import
    monkeypatch.setattr(rm, "remove", interrupt)
    assert main(["rm", made, "--endpoint", embedded_url]) == 130
    assert capsys.readouterr().err == "Stopped.\n"


def test_a_deleted_domain_is_missing_to_all(run: Run, made: str, folder: str, tmp_path: Path) -> None:
    """The server says 410 of it; a command says so, and makes it again."""
    again = f"{folder}/again.h5"
    with h5py.File(tmp_path / "small.h5", "w") as file:
        file["x"] = [1, 2]
    run("cp", made, f"{folder}/moved.h5")
    for remake in (
        ("cp", made, again),
        ("import", str(tmp_path / "small.h5"), again),
        ("mv", f"{folder}/moved.h5", again),
    ):
        run("cp", made, again)
        run("rm", again)
        for command in (("ls",), ("info",), ("rm",), ("export",)):
            words = (str(tmp_path / "out.h5"),) if command == ("export",) else ()
            (said,) = run(*command, again, *words, status=2)
            assert again in said
        run(*remake)
        assert again in run("ls", folder)
        run("rm", again)


def test_one(run: Run, folder: str) -> None:
    assert run("mkdir", f"{folder}/a/") == [f"created {folder}/a/"]
    assert run("mkdir", f"{folder}/a", status=2) == [f"hsparse: {folder}/a exists already."]
    created = {"action": "created", "path": f"{folder}/a/b/"}
    assert [json.loads(line) for line in run("mkdir", "--json", f"{folder}/a/b")] == [created]


def test_without_its_parent_the_command_is_named_that_makes_one(run: Run, folder: str) -> None:
    (said,) = run("mkdir", f"{folder}/x/y", status=2)
    assert said.endswith(
        f"The parent folder {folder}/x does not exist; create it first: hsparse mkdir -p {folder}/x"
    )
    assert run("mkdir", said.rpartition(" ")[2]) == [f"created {folder}/x/"]
    assert run("mkdir", f"{folder}/x/y") == [f"created {folder}/x/y/"]


def test_parents(run: Run, made: str, folder: str) -> None:
    assert run("mkdir", "-p", f"{folder}/a/b") == [f"created {folder}/a/", f"created {folder}/a/b/"]
    assert run("mkdir", "-p", f"{folder}/a/b") == []
    assert run("mkdir", "-p", made, status=2) == [
        f"hsparse: {made} is a domain, so it cannot be a folder: choose another name."
    ]
    assert run("mkdir", "-p", f"{made}/a", status=2) == [
        f"hsparse: {made} is a domain, so it cannot be a folder: choose another name."
    ]


@pytest.fixture
def tree(embedded_url: str) -> Iterator[ServerTree]:
    found = ServerTree(lambda domain: Connection(embedded_url, domain))
    yield found
    found.close()


def test_paths_go_on_inside_a_domain(tree: ServerTree, made: str, folder: str) -> None:
    assert tree.find("/").kind is Kind.FOLDER
    assert tree.find(f"hdf5:/{folder}/").kind is Kind.FOLDER
    domain = tree.find(made)
    assert (domain.kind, domain.domain, domain.name) == (Kind.DOMAIN, made, "some.h5")
    for inside, kind in {
        "group": Kind.GROUP,
        "group/loop/loop/words": Kind.DATASET,
        "group/soft": Kind.DATASET,
        "group/type": Kind.DATATYPE,
    }.items():
        found = tree.find(f"{made}/{inside}")
        assert (found.path, found.kind, found.domain) == (f"{made}/{inside}", kind, made)
    for missing in (f"{made}/none", f"{made}/dense/none", f"{folder}/none/none", "/home/none"):
        with pytest.raises(NotFound, match=f"There is no folder, domain or object {missing}."):
            tree.find(missing)


def test_what_is_wrong_with_a_path(tree: ServerTree, made: str) -> None:
    with pytest.raises(BadRequest, match="must be an absolute path"):
        tree.find("some.h5")
    with pytest.raises(BadRequest, match="must not have the component"):
        tree.find("/home/../etc")
    with pytest.raises(BadRequest, match=f"{made}/group is a group in the domain {made}"):
        tree.find_place(f"{made}/group")
    assert normal_path("/home//admin///") == "/home/admin"
    assert normal_path("hdf5://home/admin") == "/home/admin"


def test_patterns_match_in_folders_and_in_domains(tree: ServerTree, made: str, folder: str) -> None:
    def matched(text: str) -> list[str]:
        return [entry.path.removeprefix(folder) for entry in tree.expand(text)]

    for name in ("a1", "a2", "b1"):
        tree.create(f"{folder}/{name}", {"folder": 1})
    tree.create(f"{folder}/a1/x.h5", {})
    assert (matched(f"{folder}/a?"), matched(f"{folder}/[ab]1")) == (["/a1", "/a2"], ["/a1", "/b1"])
    assert matched(f"{folder}/*/x.h5") == ["/a1/x.h5"]
    assert matched(f"{folder}/*.h5/g*/w*") == ["/some.h5/group/words"]
    assert matched(f"{folder}/a1") == ["/a1"]
    with pytest.raises(NotFound, match="No folder, domain or object matches"):
        matched(f"{folder}/c*")
    with pytest.raises(NotFound, match="There is no folder"):
        matched(f"{folder}/c1/*")


def test_paths_and_patterns_lead_through_links(tree: ServerTree, made: str, folder: str) -> None:
    there = tree.create(f"{folder}/other.h5", {})["root"]
    for title, target in (("x", "/group"), ("again", "/x")):
        link = {"h5path": target, "h5domain": "some.h5"}
        tree.put(f"/groups/{there}/links/{title}", link, f"{folder}/other.h5")
    root = tree.find(made).record["root"]
    for title, target in (("alias", "/group"), ("round", "/round"), ("away", "/group/far")):
        tree.put(f"/groups/{root}/links/{title}", {"h5path": target}, made)
    assert tree.find(f"{made}/group/far/words").domain == made
    assert tree.find(f"{folder}/other.h5/x/soft").kind is Kind.DATASET

    def matched(text: str) -> list[str]:
        return [entry.path.removeprefix(made) for entry in tree.expand(f"{made}/{text}")]

    assert matched("*/words") == ["/alias/words", "/away/words", "/group/words"]
    assert matched("*/f*/words") == ["/alias/far/words", "/away/far/words", "/group/far/words"]


def test_listings_have_pages(
    tree: ServerTree, made: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_tree, "PAGE_MEMBERS", 2)
    monkeypatch.setattr(server_tree, "LINKS_PAGE", 2)
    for number in range(5):
        tree.create(f"{folder}/{number}", {"folder": 1})
    names = [entry.name for entry in tree.members(tree.find(folder))]
    assert names == ["0", "1", "2", "3", "4", "some.h5"]
    inside = [entry.name for entry in tree.members(tree.find(f"{made}/group"))]
    assert inside == ["far", "frames", "loop", "ref", "same", "soft", "type", "words"]


@pytest.fixture
def idle_tree() -> Iterator[ServerTree]:
    """A tree of no server."""
    tree = ServerTree(lambda _: pytest.fail("it sends no request"))
    yield tree
    tree.close()


def test_work_of_each_goes_on_at_once_and_is_yielded_in_order(idle_tree: ServerTree) -> None:
    meeting = Barrier(CONCURRENCY, timeout=60)

    def work(number: int) -> int:
        meeting.wait()  # breaks unless all of them are there
        return -number

    assert list(idle_tree.each(range(3 * CONCURRENCY), work)) == [-one for one in range(3 * CONCURRENCY)]


@pytest.mark.parametrize("failing", [0, 1, CONCURRENCY - 1, CONCURRENCY, 3 * CONCURRENCY - 1])
def test_after_a_failure_all_that_began_is_yielded_and_no_more(idle_tree: ServerTree, failing: int) -> None:
    begun, found = [], []

    def work(number: int) -> int:
        begun.append(number)
        if number == failing:
            raise Conflict("This one fails.")
        return number

    with pytest.raises(Conflict, match="This one fails"):
        found.extend(idle_tree.each(range(3 * CONCURRENCY), work))
    assert found == sorted(set(begun) - {failing})
    assert max(begun) < failing + CONCURRENCY


def test_a_domain_that_may_not_be_read_is_no_folder(
    tree: ServerTree, made: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listings leave out its root."""
    real = ServerTree.json

    def without_roots(self: ServerTree, method: str, path: str, domain: str, **params: object) -> object:
        found = real(self, method, path, domain, **params)
        if path == "/domains":
            for record in found["domains"]:
                record.pop("root", None)
        return found

    monkeypatch.setattr(ServerTree, "json", without_roots)
    [entry] = tree.members(tree.find(folder))
    assert (entry.path, entry.kind, entry.display_path) == (made, Kind.DOMAIN, made)
    assert {one.name for one in tree.members(entry)} >= {"dense", "group"}
