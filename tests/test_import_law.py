"""The import law of the architecture: which room may import which, and third parties only where allowed.

Modules that are named as strings, to be imported when they are used, count as imported.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from hsparse import api
from hsparse.cli.main import COMMANDS

PACKAGE = Path(__file__).parent.parent / "hsparse"

GROUND = {
    "attempts",
    "bounded_cache",
    "printable",
    "errors",
    "clock",
    "compute",
    "setting",
    "metric",
    "optional_module",
    "concurrency",
    "model",
    "format",
}
EXTENSIONS = {
    *("api_keys", "client.integrations", "explorer", "hdf5", "openid", "quotas", "telemetry", "torch"),
    *("stripes", "versions"),
}
"""Rooms that no other one imports but each other: the rest works without them."""
EXTENSIONS_DOTTED = tuple(f"{name}." for name in EXTENSIONS)
ROOMS: dict[str, set[str]] = {
    "attempts": {"clock"},
    "bounded_cache": set(),
    "printable": set(),
    "errors": set(),
    "clock": set(),
    "compute": set(),
    "setting": set(),
    "machine_memory": set(),
    "metric": set(),
    "sections": {"setting"},
    "optional_module": {"errors"},
    "extension": {"errors", "optional_module"},
    "concurrency": {"errors"},
    "model": {"bounded_cache", "errors", "clock", "optional_module"},
    "format": {"bounded_cache", "errors", "model"},
    "storage": {
        "attempts",
        "bounded_cache",
        "concurrency",
        "errors",
        "clock",
        "compute",
        "printable",
        "setting",
    },
    "cluster": {"attempts", "errors", "clock", "storage.object_store", "model.schema"},
    "wire": {"errors", "model", "format", "concurrency"},
    "dn": {"wire", "storage", "cluster", "machine_memory", *GROUND} - {"optional_module"},
    "sn": {
        "attempts",
        "bounded_cache",
        "printable",
        "wire",
        "format",
        "model",
        "cluster",
        "concurrency",
        "compute",
        "errors",
        "clock",
        "setting",
        "metric",
    },
    "client": {
        *("attempts", "bounded_cache", "format", "model", "errors", "clock", "machine_memory"),
        *("optional_module",),
        *("storage.filesystem.object_file", "cli.embedded_store"),
    },
    "client.integrations": {
        "client",
        "hdf5.domain_file",
        "hdf5.format",
        "machine_memory",
        "storage.filesystem.object_file",
        *GROUND,
    },
    "torch": {"client"},
    "hdf5": {
        *("config", "extension", "hdf5.format", "machine_memory"),
        *("cli", "client", "wire", "storage", "dn", "sn", *GROUND),
    },
    "hdf5.format": {"bounded_cache", "errors", "model", "format"},
    **{name: {"api"} for name in ("api_keys", "explorer", "openid", "quotas", "stripes", "telemetry")},
    "versions": {"config", "extension", "cli", "client", "wire", "storage", "cluster", "dn", "sn", *GROUND},
    "config": {
        *(
            "errors",
            "extension",
            "setting",
            "sections",
            "dn.data_settings",
            "sn.service_settings",
            "storage.store_settings",
        )
    },
}
THIRD_PARTY: dict[str, set[str] | frozenset[str]] = {
    "attempts": set(),
    "bounded_cache": set(),
    "printable": set(),
    "errors": set(),
    "clock": set(),
    "compute": set(),
    "setting": set(),
    "machine_memory": set(),
    "metric": {"prometheus_client"},
    "sections": set(),
    "optional_module": set(),
    "extension": set(),
    "concurrency": set(),
    "model": {"numpy"},
    "format": {"numpy", "imagecodecs"},
    "storage": set(),
    "storage.clouds.obstore_store": {"obstore"},
    "storage.s3.s3_client": {"aiobotocore", "botocore", "aiohttp"},
    "storage.s3.rotating_credentials": {"aiobotocore", "botocore"},
    "storage.s3.s3_store": {"botocore"},
    "cluster": set(),
    "wire": {"numpy", "msgpack", "orjson"},
    "wire.remote_node": {"aiohttp"},
    "dn": {"numpy", "orjson"},
    "dn.server": {"aiohttp"},
    "sn": {"numpy", "aiohttp", "orjson"},
    "sn.values.media.arrow": {"nanoarrow"},
    "sn.values.media.arrow_reductions": {"nanoarrow"},
    "sn.values.media.arrow_table": {"nanoarrow"},
    "sn.coding": {"imagecodecs"},
    "sn.about": {"yaml"},
    "sn.auth.password_hash": {"argon2"},
    "client": {"numpy"},
    "client.integrations": {"numpy"},
    "client.sparse.frame_array": {"scipy"},
    "client.integrations.direct.bucket_objects": {"obstore"},
    "client.integrations.fsspec_filesystem": {"fsspec"},
    "client.integrations.xarray.xarray_backend": {"xarray"},
    "torch": {"torch", "numpy"},
    "hdf5": {"numpy", "aiohttp", "orjson"},
    "hdf5.importer.formats.soma_experiment": {"anndata", "tiledbsoma", "zarr"},
    "hdf5.importer.formats.zarr_arrays": {"zarr"},
    "hdf5.importer.formats.zarr_parts": {"zarr"},
    "hdf5.importer.formats.zarr_store": {"zarr"},
    "hdf5.maps.parquet_references": {"pyarrow"},
    "hdf5.format": {"numpy", "imagecodecs"},
    "hdf5.in_place.kept_files": {"msgpack"},
    **dict.fromkeys(("api_keys", "stripes", "telemetry"), frozenset()),
    **dict.fromkeys(("explorer", "openid", "quotas"), frozenset({"aiohttp"})),
    "versions": {"aiohttp", "numpy", "orjson"},
    "openid.issuer": {"joserfc", "orjson"},
    "config": {"pydantic", "pydantic_settings"},
}
FOR_TYPES = {"client": {"anndata", "dask", "pandas", "polars", "pyarrow", "scipy", "sparse"}}
"""What a room may name in annotations besides: imported by type checkers, never when the module runs."""
FREE = {"api", "cli", ""}
"""Rooms that may import everything: composition, the package itself, and the names that extensions may import."""
STORAGE_FOR_DN = {"storage.object_store"}
TABLES = {"", "api", "optional_module"}
"""Modules that import other ones by their names, when those are used."""
BY_NAME = {"importlib.import_module", "hsparse.optional_module.OptionalModule"}
"""What imports by a name: in a file that has one of these, each string that names a module is read as an import."""


@cache
def modules() -> list[tuple[str, Path]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [
        (".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__"), path)
        for path in paths
    ]


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Return every module a file imports, and whether the import stands inside a function."""
    tree = ast.parse(path.read_text())
    nodes: list[tuple[ast.AST, bool]] = [(tree, False)]
    for node, is_inside in nodes:  # which grows
        below = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        nodes += [(child, below) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    found = []
    for node, is_inside in nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name, is_inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found += [(f"{node.module}.{alias.name}", is_inside) for alias in node.names]
    return found + [(name, False) for name in named_imports(path)]


@cache
def named_imports(path: Path) -> list[str]:
    """Return what a file imports by its name when it is used."""
    tree = ast.parse(path.read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
    return named_modules(tree) if BY_NAME & names else []


@cache
def type_imports(path: Path) -> set[str]:
    """Return what a file imports under `if TYPE_CHECKING:`, and nowhere else."""
    blocks = [
        block
        for block in ast.parse(path.read_text()).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
    ]
    found = [
        f"{node.module}.{alias.name}"
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    every = [name for name, _ in imports(path)]
    return {name for name in found if every.count(name) == found.count(name)}


def named_modules(tree: ast.AST) -> list[str]:
    """Return the modules that strings in a file name in full."""
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [
        one
        for one in values
        if isinstance(one, str) and re.fullmatch(r"hsparse(\.\w+)+", one) and is_module(one)
    ]


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def room_of(module: str) -> str:
    """Return the room of a module, also the inner one of a room in a room."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in ROOMS), parts[0])


@pytest.mark.parametrize(
    ("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_module_imports_only_what_its_room_may(module: str, path: Path) -> None:
    room = room_of(module)
    for name, inside in imports(path):
        assert not inside, f"{module} imports {name} inside a function"
        if room in FREE:
            continue
        top, _, rest = name.partition(".")
        if top == "hsparse":
            allowed = room_of(rest) == room or any(
                rest == item or rest.startswith(item + ".") for item in ROOMS[room]
            )
            by_name = name in named_imports(path) or name in type_imports(path)
            allowed |= room_of(rest) == "client.integrations" and room == "client" and by_name
            assert allowed or rest == "__version__", f"{module} may not import {name}"
            if room == "dn" and room_of(rest) == "storage":
                assert rest.startswith(tuple(STORAGE_FOR_DN)), f"{module} imports more than the protocol"
        elif top not in sys.stdlib_module_names:
            allowed_here = THIRD_PARTY[room] | THIRD_PARTY.get(module.rstrip("."), set())
            if name in type_imports(path):
                allowed_here |= FOR_TYPES.get(room.partition(".")[0], set())
            assert top in allowed_here, f"{module} may not import {top}"


COMPOSITION = ("sn.app", "sn.server", "sn.policies", "api", "cli", *EXTENSIONS)
"""What may import policies: where the application is put together, and what adds some."""


def test_the_core_imports_neither_extensions_nor_policies() -> None:
    for module, path in modules():
        found = {name.removeprefix("hsparse.") for name, _ in imports(path) if name not in type_imports(path)}
        statically = found - {name.removeprefix("hsparse.") for name in named_imports(path)}
        if not module.startswith(EXTENSIONS_DOTTED) and module not in ("", "torch"):
            wrong = {one for one in statically if one.startswith(EXTENSIONS_DOTTED)}
            assert not wrong, f"{module} imports an extension: {wrong}"
        if not module.startswith(COMPOSITION):
            assert not [one for one in found if one.startswith("sn.policies")], f"{module} imports a policy"


def test_only_tables_import_by_name() -> None:
    found = {
        module.rstrip(".")
        for module, path in modules()
        if "importlib.import_module" in {name for name, _ in imports(path)}
    }
    assert found == TABLES
    other = re.compile(r"__import__|find_spec|\bimportlib\.import")
    assert not [path for _, path in modules() if other.search(path.read_text())]


def test_tables_name_modules_that_there_are() -> None:
    for one in [
        *COMMANDS.values(),
        *(part for command in COMMANDS.values() for part in command.parts.values()),
    ]:
        assert is_module(one.module), f"COMMANDS names {one.module}"


def test_no_cycles() -> None:
    known = {module for module, _ in modules()}
    graph: dict[str, set[str]] = {}
    for module, path in modules():
        targets = set()
        for name, _ in imports(path):
            rest = name.removeprefix("hsparse.")
            while rest and rest not in known:
                rest = rest.rpartition(".")[0]
            if name.startswith("hsparse.") and rest and rest != module:
                targets.add(rest)
        graph[module] = targets
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"import cycle: {' -> '.join((*trail, module))}"
        if module not in done:
            for target in graph.get(module, ()):
                visit(target, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


BESIDE_THE_API = {"hdf5": 393, "versions": 63}
"""How many names extensions still import that `hsparse.api` does not have. The numbers fall."""


@pytest.mark.parametrize("extension", BESIDE_THE_API)
def test_extensions_import_few_names_beside_the_api(extension: str) -> None:
    found = {
        name
        for module, path in modules()
        if module.startswith(f"{extension}.")
        for name, _ in imports(path)
        if name.startswith("hsparse.")
        and not name.startswith(f"hsparse.{extension}.")
        and name.rpartition(".")[2] not in api.__all__
    }
    assert len(found) == BESIDE_THE_API[extension]


def test_type_checkers_know_the_names_of_the_api() -> None:
    declared = [
        (node.module, one.name)
        for node in ast.parse((PACKAGE / "api.pyi").read_text()).body
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    ]
    assert sorted(name for _, name in declared) == api.__all__
    for module, name in declared:
        assert getattr(api, name) is getattr(import_module(str(module)), name)
