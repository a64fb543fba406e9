"""Settings: declared once, with units, read from flags and the environment, checked, given to the parts."""

from __future__ import annotations

import os
from dataclasses import FrozenInstanceError, dataclass, fields
from pathlib import Path

import pytest

from hsparse.cli.child_nodes import inherited_flags
from hsparse.cli.environment import check_environment
from hsparse.config import SECTIONS, SETTINGS, is_loopback, load_settings
from hsparse.dn import data_settings
from hsparse.errors import Misconfigured
from hsparse.extension import extension_sections
from hsparse.openid.settings import OpenIdSettings
from hsparse.setting import declared_settings, format_size, misspelling, parse_size, setting
from hsparse.sn.service_settings import CompressionPolicy


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in SETTINGS.values():
        monkeypatch.delenv(one.env_var, raising=False)


def test_every_setting_belongs_to_one_section() -> None:
    names = [
        name for section in (*SECTIONS.values(), *extension_sections()) for name in declared_settings(section)
    ]
    assert len(names) == len(set(names))
    assert set(names) == SETTINGS.keys()


def test_defaults_are_those_of_the_declarations() -> None:
    settings = load_settings()
    for name, section in SECTIONS.items():
        values = getattr(settings, name)
        assert isinstance(values, section)
        for field in fields(section):
            assert getattr(values, field.name) == field.default
    for section in extension_sections():
        assert settings.section(section) == section()


def test_a_flag_wins_over_a_variable_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().server.port == 5101
    monkeypatch.setenv("HSPARSE_PORT", "6000")
    assert load_settings(port=None).server.port == 6000
    assert load_settings(port="7000").server.port == 7000


def test_texts_become_the_declared_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSPARSE_OIDC_AUDIENCE", "one, two,")
    monkeypatch.setenv("HSPARSE_NODE_TOKEN", "secret")
    settings = load_settings(root="store", fsync="false", compress="all", rate_limit="2.5", admins="ada")
    assert settings.section(OpenIdSettings).oidc_audience == ("one", "two")
    assert settings.sign_in.admins == ("ada",)
    assert settings.store.root == Path("store")
    assert settings.store.fsync is False
    assert settings.service.compress is CompressionPolicy.ALL
    assert (settings.service.rate_limit, settings.cluster.node_token) == (2.5, "secret")
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"port": 65536}, r"^--port \(HSPARSE_PORT\): .*less than or equal to 65535"),
        ({"cache_size": 1}, r"^--cache-size \(HSPARSE_CACHE_SIZE\): .*greater than or equal to 1048576"),
        ({"cache_size": "1GX"}, r"^--cache-size \(HSPARSE_CACHE_SIZE\): 'GX' is not a unit of size"),
        ({"cache_size": "512kB"}, r"^--cache-size .*greater than or equal to 1048576"),
        ({"rate_limit": -1}, r"^--rate-limit \(HSPARSE_RATE_LIMIT\): "),
        ({"oidc_user_claim": ""}, r"^--oidc-user-claim \(HSPARSE_OIDC_USER_CLAIM\): .*at least 1 character"),
        ({"compress": "some"}, r"^--compress \(HSPARSE_COMPRESS\): .*'none', 'json' or 'all'"),
    ],
)
def test_a_bad_value_is_named(flags: dict[str, object], named: str) -> None:
    with pytest.raises(Misconfigured, match=named):
        load_settings(**flags)


def test_sizes_have_units_in_flags_and_in_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSPARSE_PENDING_SIZE", "512MiB")
    monkeypatch.setenv("HSPARSE_PAGE_SIZE", "1_000_000")
    settings = load_settings(cache_size="1GB", max_request_size=2**21)
    assert (settings.data.cache_size, settings.data.pending_size) == (10**9, 2**29)
    assert (settings.service.page_size, settings.service.max_request_size) == (10**6, 2**21)


@pytest.mark.parametrize(
    ("memory", "nodes", "expected"),
    [
        (16 << 30, 1, 2 << 30),
        (16 << 30, 4, 512 << 20),
        (512 << 20, 1, 128 << 20),
        (16 << 30, 64, 128 << 20),
        (1 << 40, 1, 4 << 30),
    ],
)
def test_the_cache_is_an_eighth_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, memory: int, nodes: int, expected: int
) -> None:
    monkeypatch.setattr(data_settings, "machine_memory", lambda: memory)
    assert load_settings().data.cache_bytes(nodes) == expected
    assert load_settings(cache_size="300MiB").data.cache_bytes(nodes) == 300 << 20


def test_data_nodes_of_serve_share_that_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_settings, "machine_memory", lambda: 16 << 30)
    for flags, expected in (({"dn": 4}, 512 << 20), ({"dn": 4, "cache_size": "1GiB"}, 1 << 30)):
        given = inherited_flags(load_settings(**flags))
        assert given[given.index("--cache-size") + 1] == str(expected)


def test_settings_of_bytes_take_units() -> None:
    sizes = {name for name, one in SETTINGS.items() if name.endswith(("_size", "_memory", "_quota"))}
    assert sizes == {name for name, one in SETTINGS.items() if one.is_size}


def test_settings_are_frozen() -> None:
    settings = load_settings()
    with pytest.raises(FrozenInstanceError):
        settings.store.root = Path("other")  # type: ignore[misc]


def test_a_field_with_a_plain_default_is_no_setting() -> None:
    @dataclass(frozen=True)
    class Section:
        width: int = setting(3, "columns", ge=1)
        height: int = 4

    assert Section() == Section(3, 4)
    fields_of = {one.name: one for one in fields(Section)}
    assert fields_of["width"].metadata["description"] == "columns"
    assert not fields_of["height"].metadata


def test_a_list_may_be_given_several_times() -> None:
    settings = load_settings(bucket=["a", "b, c"], admins=["ann,ben"])
    assert (settings.store.bucket, settings.sign_in.admins) == (("a", "b", "c"), ("ann", "ben"))


def test_all_addresses_of_the_machine_alone_are_safe_without_users() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.0.2", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "localhost.example.org", "")))


TEXTS = [
    name for name, one in SETTINGS.items() if "str" in str(one.annotation) or "Path" in str(one.annotation)
]
AWS = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"]
FOREIGN = [*AWS, "AZURE_STORAGE_ACCOUNT_KEY", "HS_PASSWORD"]


@pytest.mark.parametrize("name", [*TEXTS, *FOREIGN])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_variable_s_line_end_is_no_value(name: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of files and of `base64` end in one."""
    variable = SETTINGS[name].env_var if name in SETTINGS else name
    monkeypatch.setenv(variable, f"https://value{end}")
    settings = load_settings()
    assert os.environ[variable] == "https://value"
    for section in (getattr(settings, one) for one in SECTIONS):
        assert "\n" not in str(getattr(section, name, ""))


@pytest.mark.parametrize("variable", ["HSPARSE_NODE_TOKEN", "HSPARSE_BUCKET", "AWS_SECRET_ACCESS_KEY"])
def test_a_variable_of_two_lines_is_named(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "first\nsecond")
    with pytest.raises(Misconfigured, match=f"{variable} contains a line end") as caught:
        load_settings()
    assert "first" not in str(caught.value)
    with pytest.raises(Misconfigured, match=variable):
        check_environment()


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("1000000", 10**6),
        ("1_000_000", 10**6),
        ("7B", 7),
        ("512MiB", 512 * 2**20),
        ("512mib", 512 * 2**20),
        (" 1 GB ", 10**9),
        ("1kB", 1000),
        ("2KiB", 2048),
        ("1.5GiB", 3 * 2**29),
        ("3TB", 3 * 10**12),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert (parse_size(text), parse_size(format_size(nbytes))) == (nbytes, nbytes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a size"),
        ("-1", "not a size"),
        ("1e9", "'e' is not a unit|not a size"),
        ("1G", "'G' is not a unit of size; write kB, MB, GB, TB, KiB, MiB, GiB or TiB"),
        ("MiB", "not a size"),
        ("1__0", "not a size"),
        ("1.5", "not a whole number of bytes"),
        ("٣", "not a size"),
        ("9" * 19, "at most 18 digits"),
    ],
)
def test_what_is_no_size(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_size(text)


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0"), (1, "1"), (1024, "1KiB"), (128 * 2**20, "128MiB"), (10**9, "1000000000")]
)
def test_sizes_are_printed_whole(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


def test_misspellings() -> None:
    known = ["HSPARSE_CACHE_SIZE", "HSPARSE_ENDPOINT", "HSPARSE_PORT"]
    assert misspelling(["PATH", "HSPARSE_PORT", "hsparse_port", "HSPARSER"], known) is None
    assert misspelling(["HSPARSE_CACHESIZE"], known) == (
        "There is no variable HSPARSE_CACHESIZE: do you mean HSPARSE_CACHE_SIZE?"
    )
    assert misspelling(["HSPARSE_XYZZY_QQQQQQQQ"], known) == (
        "There is no variable HSPARSE_XYZZY_QQQQQQQQ: no setting has such a name; unset HSPARSE_XYZZY_QQQQQQQQ."
    )
