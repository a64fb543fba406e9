"""The pages against the code: what they list is there, all that is there is listed, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.publish import CHART, PAGE, insert, picture, summary
from hsparse import __version__
from hsparse.cli.environment import CLIENT_SETTINGS
from hsparse.cli.main import main
from hsparse.config import SETTINGS
from hsparse.dn.metrics import NODE_METRICS
from hsparse.errors import ErrorKind
from hsparse.format.filters.pipeline import CODECS
from hsparse.format.kinds.sparse import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk, encode_sparse_vlen
from hsparse.format.structured.container import MAX_FOOTER, footer_size
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from hsparse.setting import Declaration, format_size
from hsparse.sn.metrics import METRICS
from hsparse.wire.remote_node import STATUS
from tests.docs_pages import PAGES, PROJECT, RECORDS, anchors, blocks, page, prose, records, rows
from tests.support.rest_client import ROUTES

NAMES = [str(name.relative_to(PROJECT)) for name in PAGES]
COMMANDS = ("serve", "sn", "dn", "user", "key")
NESTED = {"user": ("user", "list"), "key": ("key", "add")}
"""Commands that have commands, and one of these that takes the settings' flags."""
OTHER_WORDS = (
    "graves?",
    "linked dataset",
    "counted form",
    "put log",
    "refusals?",
    "known to be imperfect",
    "which is stored nowhere",
    "fsync that means it",
)
"""Phrases that the project's vocabulary replaces by others, as patterns."""


def plain(cell: str) -> str:
    return cell.strip("`")


@pytest.mark.parametrize(
    "path",
    [name for name in PAGES if name.name != "CHANGELOG.md"] + sorted((PROJECT / "examples").rglob("*.ipynb")),
    ids=lambda path: path.name,
)
def test_no_page_installs_from_an_index(path: Path) -> None:
    found = re.search(r"""pip install (-\S+ )*[\\"'`]*hsparse\b.*""", path.read_text())
    assert found is None, f'hsparse is on no index; write pip install ".[...]": {found and found[0]}'


def test_the_rest_reference_has_every_route_with_its_right_and_no_other() -> None:
    paths = [re.sub(r"{(\w+):[^}]*}", r"{\1}", route.path) for route in ROUTES]
    routes = {
        (f"{route.method} {path}", route.right or "-") for route, path in zip(ROUTES, paths, strict=True)
    }
    listed = [(plain(row[0]), plain(row[1])) for row in rows("docs/rest.md", "request")]
    assert (len(listed), set(listed)) == (len(set(listed)), routes)


def test_parameters_in_the_rest_reference_are_read_somewhere() -> None:
    source = "\n".join(path.read_text() for path in (PROJECT / "hsparse").rglob("*.py"))
    for row in rows("docs/rest.md", "request"):
        for name in re.findall(r"`(\w+)(?:=\w+)?`", row[3] if len(row) > 3 else ""):
            assert f'"{name}"' in source, f"{row[0]} has no parameter {name}"


def shown_default(one: Declaration) -> str:
    """Return a default as docs/settings.md shows it."""
    value = format_size(one.default) if one.is_size and one.default is not None else one.default
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        value = ",".join(value)
    return "none" if value in (None, "") else f"`{value}`"


def flags_of(capsys: pytest.CaptureFixture[str], *command: str) -> set[str]:
    """Return the flags in a command's help, without `--no-...` and `--help`."""
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    found = set(re.findall(r"(--[a-z0-9][a-z0-9-]*)", capsys.readouterr().out.partition("options:")[0]))
    return {flag for flag in found if not flag.startswith("--no-")}


def test_the_settings_page_has_every_setting_with_its_flag_variable_default_and_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = {name: flags_of(capsys, *NESTED.get(name, (name,))) for name in COMMANDS}
    expected = []
    for name, field in SETTINGS.items():
        flag = f"--{name.replace('_', '-')}"
        taken = [command for command in COMMANDS if flag in flags[command]]
        shown = f"`{flag}`" if taken else "(no flag)"
        expected.append((shown, f"`HSPARSE_{name.upper()}`", shown_default(field), taken))
    listed = [
        (row[0], row[1], row[2], row[3].split(", ") if row[0] != "(no flag)" else [])
        for row in rows("docs/settings.md", "flag")
    ]
    key = lambda row: row[1]  # noqa: E731
    assert sorted(listed, key=key) == sorted(expected, key=key)


def test_the_settings_page_has_every_setting_of_client_commands() -> None:
    expected = [
        (f"`{one.flag}`" if one.commands is None else "(no flag)", f"`{one.env_var}`", shown_default(one))
        for one in CLIENT_SETTINGS.values()
    ]
    listed = [(row[0], row[1], row[2]) for row in rows("docs/settings.md", "client flag")]
    assert sorted(listed) == sorted(expected)


def test_pages_name_no_variable_that_is_no_setting() -> None:
    known = {one.env_var for one in (*SETTINGS.values(), *CLIENT_SETTINGS.values())}
    for name in NAMES:
        found = set(re.findall(r"HSPARSE_[A-Z0-9_]*[A-Z0-9]", page(name)))
        assert found <= known, f"{name} names {found - known}"


def test_pages_name_no_flag_of_hsparse_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"--help"}
    plain_commands = [(one,) for one in COMMANDS if one not in NESTED]
    for command in (
        *plain_commands,
        *(("user", name) for name in ("add", "role")),
        *(("key", name) for name in ("add", "revoke")),
        *(("job", name) for name in ("import", "list")),
        *((name,) for name in ("import", "export", "map", "nodes", "sweep", "snapshot", "log", "diff")),
        *((name,) for name in ("ls", "info", "mkdir", "cp", "mv", "rm", "quota", "acl", "du", "concat")),
        *((name,) for name in ("restore", "clone")),
    ):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        known |= set(re.findall(r"(--[a-z0-9][a-z0-9-]*)", capsys.readouterr().out))
    for name in NAMES:
        lines = [line for block in blocks(name, "sh") for line in block.splitlines()]
        spans = [span for span in re.findall(r"`([^`\n]*)`", prose(name)) if re.match(r"--|hsparse ", span)]
        for line in [line for line in lines if re.match(r"(\S*/)?hsparse ", line)] + spans:
            found = set(re.findall(r"(?<![\w-])(--[a-z0-9][a-z0-9-]*)", line))
            assert found <= known, f"{name} names {found - known}"


def test_the_errors_page_has_every_kind_with_its_status() -> None:
    listed = [(plain(row[0]), int(row[1])) for row in rows("docs/errors.md", "kind")]
    assert sorted(listed) == sorted((kind.value, STATUS[kind]) for kind in ErrorKind)


def test_the_deploy_page_has_every_metric() -> None:
    listed = [
        (plain(row[0]), row[1], tuple(row[2].split(", ")) if row[2] else ())
        for row in rows("docs/deploy.md", "metric")
    ]
    kinds = {
        metric.name: getattr(metric.kind, "__name__", "").lower() for metric in (*METRICS, *NODE_METRICS)
    }
    assert sorted(listed) == sorted(
        (metric.name, kinds[metric.name], metric.labels) for metric in (*METRICS, *NODE_METRICS)
    )


def test_the_format_page_has_every_filter() -> None:
    listed = {int(row[0]): row[1].split()[0] for row in rows("docs/format.md", "id")}
    assert listed == {id: codec.name for id, codec in CODECS.items()}


def test_the_bytes_on_the_format_page_are_those_of_the_chunk_it_tells_of() -> None:
    data, words = (
        bytes.fromhex(" ".join(line[:50].strip() for line in dump.splitlines()))
        for dump in blocks("docs/format.md", "hex")
    )
    dtype, pipelines = np.dtype("<i2"), ((), ())
    chunk = SparseChunk((4, 4), np.array([1, 6, 15], np.uint32), np.array([10, 20, -1], dtype))
    assert encode_sparse(chunk, pipelines) == data
    assert decode_sparse(data, (4, 4), dtype, pipelines).values.tolist() == [10, 20, -1]
    element = parse_type(
        {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
    ).element
    values = VlenArray.of([b"\2\0\0\0cd", bytes(4)])
    variable = SparseVlenChunk((4, 4), np.array([1, 6], np.uint32), values)
    assert encode_sparse_vlen(variable, element, ((), (), ())) == words
    text = " ".join(page("docs/format.md").split())
    assert f"length of the whole footer: {footer_size(2)} for two sections, {footer_size(3)} " in text
    assert f"last {MAX_FOOTER} bytes" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    folder = (PROJECT / name).parent
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(name))
    targets += re.findall(r"^\[[^\]]+\]: (\S+)$", prose(name), re.MULTILINE)
    for target in targets:
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (folder / path).resolve() if path else PROJECT / name
        assert there.is_relative_to(PROJECT), f"{name} links to {target}, outside of the project"
        assert there.exists(), f"{name} links to {target}"
        assert not anchor or anchor in anchors(str(there.relative_to(PROJECT))), f"{name} links to {target}"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_that_is_named_exists(name: str) -> None:
    for path in re.findall(r"`((?:hsparse|tests|benchmarks|k8s)/[\w./-]*)`", page(name)):
        assert (PROJECT / path).exists(), f"{name} names {path}"


@pytest.mark.parametrize("name", NAMES)
def test_every_make_target_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE))
    named = re.findall(r"`make ([a-z]+)", page(name))
    named += [word for block in blocks(name, "sh") for word in re.findall(r"^make ([a-z]+)", block, re.M)]
    assert set(named) <= targets


@pytest.mark.parametrize("name", NAMES)
def test_no_page_names_a_path_of_a_machine(name: str) -> None:
    found = re.findall(r"(?<![\w.$\"<>}=:/-])/(?:work|tmp|root|Users|mnt|opt|var)\b[\w/.-]*", page(name))
    assert not found, f"{name} names {found}"
    assert str(Path.home()) not in page(name)


def test_the_readme_leads_to_every_page_and_says_how_to_start() -> None:
    for name in NAMES:
        if name == "README.md":
            continue
        start = "docs/decisions/index.md" if name.startswith("docs/decisions/") else "README.md"
        link = Path(name).name if start != "README.md" and name != start else name
        assert f"({link})" in page("README.md" if name == start else start), (
            f"{start} does not lead to {name}"
        )
    assert "make demo\nmake test\n" in blocks("README.md", "sh")
    assert len(page("README.md").splitlines()) <= 130


def test_the_readme_and_the_chart_have_the_published_figures() -> None:
    published = PAGE.read_text()
    assert insert(page("README.md"), summary(published)) == page("README.md")
    assert picture(published) == CHART.read_text()


def test_the_site_has_every_page() -> None:
    listed = re.findall(r"^ +- ([\w./-]+\.md)$", page("mkdocs.yml"), re.MULTILINE)
    assert sorted(listed) == sorted(name.removeprefix("docs/") for name in NAMES if name.startswith("docs/"))


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("docs/")])
def test_pages_of_the_site_link_only_to_pages_of_the_site(name: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", prose(name)):
        inside = ((PROJECT / name).parent / target).resolve().is_relative_to(PROJECT / "docs")
        assert inside or target.startswith("https://"), f"{name} links to {target}, which the site has not"


@pytest.mark.parametrize("path", sorted((PROJECT / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_have_a_title_and_colours_for_dark_pages(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.findtext("{http://www.w3.org/2000/svg}title")
    assert "@media (prefers-color-scheme: dark)" in path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_pages_use_one_word_for_one_thing(name: str) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(name))
    found = [word for word in OTHER_WORDS if re.search(rf"\b{word}\b", text, re.IGNORECASE)]
    assert not found, f"{name} says {found}"


def test_the_changelog_has_this_version() -> None:
    assert f"## [{__version__}]" in page("CHANGELOG.md")


def test_the_rooms_of_contributing_are_those_of_the_package() -> None:
    listed = {plain(name) for row in rows("CONTRIBUTING.md", "room") for name in row[0].split(", ")}
    there = {
        path.stem
        for path in (PROJECT / "hsparse").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert listed == there - {"__init__"}


def test_decisions_are_numbered_once_and_indexed_by_page() -> None:
    found = records()
    assert len({record.number for record in found}) == len(found) <= 80
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", page("docs/decisions/index.md"), re.MULTILINE)
    for name in {record.page for record in found}:
        headings = [(f"{one.number}. {one.title}", one.link) for one in found if one.page == name]
        assert [one for one in listed if one[1].startswith(f"{name}#")] == headings
    assert len(listed) == len(found)


@pytest.mark.parametrize(
    ("pages", "most"),
    [
        (["CHANGELOG.md"], 950),
        (["README.md"], 900),
        (["CONTRIBUTING.md"], 2_000),
        ([name for name in NAMES if name.startswith("docs/decisions/")], 10_000),
        ([name for name in NAMES if Path(name).parent == Path("docs")], 38_600),
    ],
    ids=["changelog", "readme", "contributing", "decisions", "pages"],
)
def test_pages_stay_short_enough_to_be_read(pages: list[str], most: int) -> None:
    assert sum(len(page(name).split()) for name in pages) <= most


def test_decisions_have_a_date_a_context_a_decision_and_a_cost() -> None:
    for record in records():
        parts = re.findall(r"^(Date: \d{4}-\d\d-\d\d\.?|\*\*\w+\.\*\*)", record.text, re.MULTILINE)
        expected = ["**Context.**", "**Decision.**", "**Cost.**"]
        assert parts[0].startswith("Date: "), record
        assert parts[1:] == expected, record


def test_decisions_that_are_referred_to_by_number_exist() -> None:
    known = {record.number for record in records()}
    sources = [path for room in ("hsparse", "tests", "benchmarks") for path in (PROJECT / room).rglob("*.py")]
    for path in [*PAGES, *sources]:
        named = {int(number) for number in re.findall(r"\bdecision\s(\d+)\b", path.read_text())}
        assert named <= known, f"{path} refers to {named - known}"
    for path in RECORDS.glob("*.md"):
        for number, target in re.findall(r"\[(?:decision )?(\d+)\]\([\w.-]*#(\d+)-", path.read_text()):
            assert number == target, f"{path} links {number} to {target}"


def test_walk_has_eight_stops() -> None:
    first = page("docs/walk.md").partition("\n## ")[0]
    assert re.findall(r"^\*\*(\d)\. ", first, re.M) == list("12345678")


def test_every_example_that_is_named_is_there() -> None:
    named = re.compile(r"(?<![\w/.])(?:examples|demo|k8s|benchmarks)/[\w./-]*\w")
    sources = [*PAGES, *(PROJECT / "hsparse").rglob("*.py"), *(PROJECT / "examples").rglob("*.ipynb")]
    texts = {path.relative_to(PROJECT): path.read_text() for path in sources if path.name != "CHANGELOG.md"}
    missing = {(str(path), one) for path, text in texts.items() for one in named.findall(text)}
    assert {(path, one) for path, one in missing if not (PROJECT / one).exists()} == set()
