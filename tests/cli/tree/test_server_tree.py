"""Paths and patterns of a server's tree."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier

import pytest

from hsparse.cli.tree import server_tree
from hsparse.cli.tree.server_tree import CONCURRENCY, Kind, ServerTree, normal_path
from hsparse.client.connection import Connection
from hsparse.errors import BadRequest, Conflict, NotFound


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
    assert matched(f"{folder}/a?") == ["/a1", "/a2"]
    assert matched(f"{folder}/[ab]1") == ["/a1", "/b1"]
    assert matched(f"{folder}/*/x.h5") == ["/a1/x.h5"]
    assert matched(f"{folder}/*.h5/g*/w*") == ["/some.h5/group/words"]
    assert matched(f"{folder}/a1") == ["/a1"]
    with pytest.raises(NotFound, match="Nothing matches"):
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


def test_long_listings_come_page_by_page(
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
def test_after_a_failure_what_had_begun_is_yielded_and_nothing_more_begins(
    idle_tree: ServerTree, failing: int
) -> None:
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
