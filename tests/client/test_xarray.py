"""The engine `hsparse` of xarray, beside xarray's own reading of the same data from files."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sparse
import xarray
from xarray.testing import assert_equal, assert_identical

import hsparse
from hsparse.cli.main import main
from hsparse.client.integrations.xarray.xarray_backend import HsparseBackendEntrypoint
from tests.client.access_ways import open_file
from tests.client.anndata import anndata_examples as examples
from tests.client.anndata import conftest as anndata_domains


@pytest.fixture
def address(file: hsparse.File) -> str:
    return f"{file.connection.url}{file.filename}"


def weather() -> xarray.Dataset:
    rng = np.random.default_rng(1)
    rain = rng.random((4, 3, 2))
    rain[0, 1] = np.nan
    return xarray.Dataset(
        {
            "rain": (("time", "y", "x"), rain, {"units": "mm", "levels": [1, 2]}),
            "station": ("y", ["a", "bb", "ü"]),
            "level": ((), 7.5),
            "packed": (("y", "x"), np.arange(6.0).reshape(3, 2)),
        },
        {
            "time": np.array(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-05"], "M8[ns]"),
            "y": [1.0, 2.0, 3.0],
            "area": (("y", "x"), np.arange(6).reshape(3, 2)),
        },
        {"title": "some weather"},
    )


@pytest.fixture(scope="module")
def weather_file(url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A file that xarray wrote by h5netcdf, with a group, and the domain that was imported from it."""
    path = tmp_path_factory.mktemp("netcdf") / "weather.nc"
    packing = {"packed": {"dtype": "i2", "scale_factor": 0.1, "add_offset": 3.0, "_FillValue": -1}}
    weather().to_netcdf(path, engine="h5netcdf", encoding=packing)
    xarray.Dataset({"depth": ("y", [5, 6, 7])}).to_netcdf(path, mode="a", group="deep/er", engine="h5netcdf")
    assert main(["import", str(path), "/weather.nc", "--endpoint", url]) == 0
    return f"{url}/weather.nc", path


@pytest.mark.parametrize(
    "options", [{}, {"mask_and_scale": False, "decode_times": False}, {"decode_cf": False}]
)
def test_a_netcdf_file_is_what_h5netcdf_reads(
    weather_file: tuple[str, Path], options: dict[str, Any]
) -> None:
    address, path = weather_file
    with (
        xarray.open_dataset(address, engine="hsparse", **options) as found,
        xarray.open_dataset(path, engine="h5netcdf", **options) as wanted,
    ):
        assert_identical(found.load(), wanted.load())
        assert list(found.sizes) == list(wanted.sizes)


def test_groups_are_a_tree(weather_file: tuple[str, Path]) -> None:
    address, path = weather_file
    with (
        xarray.open_datatree(address, engine="hsparse") as found,
        xarray.open_datatree(path, engine="h5netcdf") as wanted,
    ):
        assert found.identical(wanted)
    with xarray.open_dataset(address, engine="hsparse", group="deep/er") as deep:
        assert (deep.depth.values.tolist(), deep.depth.dims) == ([5, 6, 7], ("y",))
    assert list(xarray.open_groups(address, engine="hsparse", group="deep")) == ["/", "/er"]
    with pytest.raises(KeyError, match="no group none"):
        xarray.open_dataset(address, engine="hsparse", group="none")


def test_indexing_is_that_of_arrays_in_memory(weather_file: tuple[str, Path]) -> None:
    address, _ = weather_file
    wanted = weather()
    with xarray.open_dataset(address, engine="hsparse", cache=False) as found:
        for key in (
            {"time": 2},
            {"time": [3, 0], "y": [2, 0, 1]},
            {"x": slice(None, None, -1), "y": -1},
            {"time": xarray.DataArray([0, 1], dims="k"), "y": xarray.DataArray([2, 0], dims="k")},
            {"time": slice(1, 1)},
        ):
            assert_equal(found.rain.isel(key), wanted.rain.isel(key))
        assert_equal(found.rain.sel(y=2.0, time="2026-01-02"), wanted.rain.sel(y=2.0, time="2026-01-02"))
        assert_equal(found.rain[1:, :2][:, 1], wanted.rain[1:, :2][:, 1])


def test_reading_is_lazy(weather_file: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    take = hsparse.DenseDataset.take
    monkeypatch.setattr(
        hsparse.DenseDataset, "take", lambda self, key: asked.append((self.name, key.key)) or take(self, key)
    )
    with xarray.open_dataset(weather_file[0], engine="hsparse", drop_variables="station") as found:
        assert {name for name, _ in asked} <= {"/time", "/y"}
        asked.clear()
        assert (found.rain[1:3, 0, 1].shape, asked) == ((2,), [])
        found.rain.variable[1:3, 0, 1].load()
        assert [(name, str(key)) for name, key in asked] == [("/rain", "(slice(1, 3, 1), 0, 1)")]
        assert "station" not in found


def test_sparse_datasets_stay_sparse(file: hsparse.File, address: str) -> None:
    made = file.create_sparse("run/frames", (6, 5, 4), "f4", (2, 5, 4))
    made.write([[0, 1, 2], [5, 4, 3]], [2.5, 7])
    made.attrs["units"] = "keV"
    whole = made.read_dense()
    with xarray.open_dataset(address, engine="hsparse", group="run") as found:
        frames = found.frames
        assert frames.dims == ("frames_dim_0", "frames_dim_1", "frames_dim_2")
        assert frames.attrs == {"units": "keV"}
        part = frames[4:, [4, 1]].load()
        assert isinstance(part.data, sparse.COO)
        assert np.array_equal(part.data.todense(), whole[4:, [4, 1]])
        assert float(frames[0, 1, 2]) == 2.5


def test_sparse_values_are_masked_and_scaled(file: hsparse.File, address: str) -> None:
    made = file.create_sparse("x", (3, 3), "i2", (3, 3), fillvalue=-1)
    made.write([[0, 1], [2, 2]], [4, 10])
    made.attrs.update({"_FillValue": np.int16(-1), "scale_factor": 0.5})
    with xarray.open_dataset(address, engine="hsparse") as found:
        values = found.x.load().data
        assert isinstance(values, sparse.COO)
        assert np.array_equal(
            values.todense(), [[np.nan, 2, np.nan], [np.nan] * 3, [np.nan, np.nan, 5]], equal_nan=True
        )


def test_with_dask(file: hsparse.File, address: str) -> None:
    file.create_sparse("x", (40, 5), "f4", (10, 5)).write([[0, 1], [39, 4]], [1, 2])
    file.create_dataset("y", data=np.arange(12.0).reshape(3, 4))
    with xarray.open_dataset(address, engine="hsparse", chunks={}) as found:
        assert found.x.chunks == ((10,) * 4, (5,))
        assert found.x[:10].sum().compute(scheduler="synchronous") == 1  # xarray makes its blocks dense
        assert_equal(found.y.mean("y_dim_0").compute(), xarray.DataArray([4.0, 5, 6, 7], dims="y_dim_1"))


def test_it_can_be_pickled(weather_file: tuple[str, Path]) -> None:
    with xarray.open_dataset(weather_file[0], engine="hsparse") as found:
        copy = pickle.loads(pickle.dumps(found))
        assert_identical(copy.load(), found.load())


def test_what_numpy_cannot_have_is_left_out(file: hsparse.File, address: str) -> None:
    file["x"] = np.arange(3)
    vlen = {"class": "H5T_VLEN", "base": {"class": "H5T_VLEN", "base": "H5T_STD_I32LE"}}
    layout = {"class": "H5D_STRUCT_CHUNK", "flags": ["H5D_SPARSE_DATA"], "dims": [2]}
    body = {"type": vlen, "shape": [2], "h5path": "/lists", "creationProperties": {"layout": layout}}
    file.connection.json("POST", "/datasets", body)
    null = {"type": "H5T_STD_I32LE", "shape": "H5S_NULL", "h5path": "/null"}
    file.connection.json("POST", "/datasets", null)
    file["gone"], file["far"] = hsparse.SoftLink("/none"), hsparse.ExternalLink("none.h5", "/x")
    file["below/gone"] = hsparse.SoftLink("/none")
    lost = "a link to an object that does not exist"
    reasons = {"lists": "variable length", "null": "null dataspace", "gone": lost, "far": lost}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with xarray.open_dataset(address, engine="hsparse") as found:
            assert list(found) == ["x"]
        with xarray.open_dataset(address, engine="hsparse", drop_variables=list(reasons)) as found:
            assert list(found) == ["x"]
    told = {str(one.message).partition(" ")[0]: str(one.message) for one in caught}
    assert (told.keys(), len(caught)) == (reasons.keys(), len(told))
    assert all(reasons[name] in text for name, text in told.items())
    assert {one.filename for one in caught} == {__file__}


@pytest.mark.parametrize("chunks", [None, {}])
def test_array_types_have_dimensions_of_their_own(
    file: hsparse.File, address: str, chunks: dict[str, int] | None
) -> None:
    values = np.arange(24.0).reshape(4, 3, 2)
    file.create_dataset("dense", (4,), ("f8", (3, 2)), chunks=(2,))[...] = values
    file.create_dataset("wave", data=np.array([1j, 2, 3 + 4j]))
    made = file.create_sparse("sparse", (4, 5), ("f8", (2,)), (2, 5))
    made[1, 2] = [7, 8]
    with xarray.open_dataset(address, engine="hsparse", chunks=chunks) as found:
        assert found.dense.dims == ("dense_dim_0", "dense_dim_1", "dense_dim_2")
        assert found.sparse.dims == ("sparse_dim_0", "sparse_dim_1", "sparse_dim_2")
        for key in (..., 1, np.s_[1:, [0, 2], 1], np.s_[:, 0], np.s_[2, 1, 1]):
            assert np.array_equal(found.dense[key].values, values[key])
        assert np.array_equal(found.wave.values, [1j, 2, 3 + 4j])
        part = found.sparse[1, 1:3].compute().data
        part = part if isinstance(part, np.ndarray) else part.todense()
        assert part.tolist() == [[0, 0], [7, 8]]


def test_attributes_of_any_type_hide_no_dataset(file: hsparse.File, address: str) -> None:
    x = file.create_dataset("x", data=[1, 2])
    x.attrs.update({"unit": np.bytes_(b"\xb0C"), "name": np.bytes_(b"ok"), "wave": 1j})
    region = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
    file.connection.json(
        "PUT", f"/datasets/{x.id}/attributes/region", {"type": region, "value": {"id": x.id[2:]}}
    )
    with xarray.open_dataset(address, engine="hsparse") as found:
        assert (found.x.attrs["unit"], found.x.attrs["name"], found.x.attrs["wave"]) == (b"\xb0C", "ok", 1j)
        assert found.x.attrs["region"]["id"] == x.id[2:]


def test_a_group_can_be_given(file: hsparse.File) -> None:
    file["run/x"] = np.arange(3)
    with xarray.open_dataset(file, engine="hsparse", group="run") as found:
        assert found.x.values.tolist() == [0, 1, 2]
    assert file["run/x"][2] == 2  # type: ignore[index]


def test_which_engine_is_guessed() -> None:
    engine = HsparseBackendEntrypoint()
    assert engine.guess_can_open("http://host:5101/home/x.h5")
    assert engine.guess_can_open("hdf5://home/x.nc")
    assert not engine.guess_can_open("x.h5")
    assert not engine.guess_can_open(Path("x.h5"))
    assert "hsparse" in xarray.backends.list_engines()


netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
PADDED_WRONGLY = (
    "an_unlimited_dimension_with_several_lengths",
    "two_unlimited_dimensions_without_coordinates",
)
"""What netCDF4 1.7 pads as if only the first dimension could be short, partly with memory that nobody has written."""
FORMS: dict[str, Callable[[Any], None]] = {}


def form(write: Callable[[Any], None]) -> Callable[[Any], None]:
    FORMS[write.__name__] = write
    return write


@form
def named_like_a_dimension(file: Any) -> None:
    file.createDimension("nvec", 5), file.createDimension("collide", 7)
    file.createVariable("collide", "i8", ("nvec",))[:] = np.arange(5)
    file.createVariable("other", "i8", ("nvec",))[:] = 1


@form
def named_like_a_dimension_of_two(file: Any) -> None:
    file.createDimension("y", 2), file.createDimension("x", 3), file.createDimension("map", 3)
    file.createVariable("map", "f4", ("y", "x"))[:] = np.arange(6).reshape(2, 3)
    inner = file.createGroup("inner")
    inner.createDimension("map", 4)
    inner.createVariable("map", "f4", ("x",))[:] = 2


@form
def a_dimension_twice(file: Any) -> None:
    file.createDimension("x", 3), file.createDimension("y", 2)
    file.createVariable("cov", "f8", ("x", "x"))[:] = np.arange(9).reshape(3, 3)
    file.createVariable("both", "f8", ("x", "y", "x"))[:] = np.arange(18).reshape(3, 2, 3)


@form
def an_unlimited_dimension_with_several_lengths(file: Any) -> None:
    file.createDimension("time", None), file.createDimension("x", 2)
    file.createVariable("time", "f8", ("time",))[:] = np.arange(5.0)
    file.createVariable("a", "f4", ("time", "x"))[:5] = 1
    file.createVariable("b", "i4", ("time",), fill_value=-1)[:2] = [1, 2]
    file.createVariable("c", "i2", ("x", "time"))[:, :3] = 7
    file.createVariable("never", "f4", ("time",))


@form
def two_unlimited_dimensions_without_coordinates(file: Any) -> None:
    file.createDimension("time", None), file.createDimension("run", None)
    file.createVariable("a", "f4", ("time", "run"))[:3, :2] = 1
    file.createVariable("b", "f4", ("run", "time"), fill_value=np.nan)[:4, :1] = 2
    inner = file.createGroup("inner")
    inner.createVariable("c", "f8", ("time",))[:6] = 3


@pytest.mark.filterwarnings("ignore:Duplicate dimension names:UserWarning")
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (engine, name)
        for engine in ("netcdf4", "h5netcdf")
        for name in FORMS
        if engine == "h5netcdf" or name not in PADDED_WRONGLY
    ],
)
def test_it_is_what_other_engines_read(url: str, tmp_path: Path, name: str, engine: str) -> None:
    path, domain = tmp_path / "a.nc", f"/{name}-{engine}.nc"
    with netcdf.Dataset(path, "w") as file:
        FORMS[name](file)
        groups = [None, *file.groups]
    assert main(["import", str(path), domain, "--endpoint", url]) == 0
    for group in groups:
        with (
            xarray.open_dataset(path, engine=engine, group=group) as wanted,
            xarray.open_dataset(f"{url}{domain}", engine="hsparse", group=group) as found,
        ):
            assert {key: one.dims for key, one in found.variables.items()} == {
                key: one.dims for key, one in wanted.variables.items()
            }
            assert_equal(found.load(), wanted.load())


@pytest.mark.parametrize("key", [np.s_[3], np.s_[1:4], np.s_[::-2], np.s_[[4, 0, 2]], np.s_[3:], -1], ids=str)
def test_a_part_that_is_padded(url: str, tmp_path: Path, key: Any) -> None:
    path, domain = tmp_path / "a.nc", f"/padded-{abs(hash(str(key)))}.nc"
    with netcdf.Dataset(path, "w") as file:
        an_unlimited_dimension_with_several_lengths(file)
    assert main(["import", str(path), domain, "--endpoint", url]) == 0
    with (
        xarray.open_dataset(path, engine="h5netcdf") as wanted,
        xarray.open_dataset(f"{url}{domain}", engine="hsparse") as found,
    ):
        assert_equal(found.isel(time=key).load(), wanted.isel(time=key).load())


example_file, imported = anndata_domains.example_file, anndata_domains.imported
Imported = Callable[[str], hsparse.File]


def test_columns_of_a_frame_share_its_dimension(imported: Imported) -> None:
    wanted = examples.column_kinds().obs
    with imported("column_kinds") as file, xarray.open_dataset(file, engine="hsparse", group="obs") as found:
        assert (dict(found.sizes), list(found)) == ({"obs": len(wanted)}, list(wanted.columns))
        assert found.indexes["obs"].tolist() == wanted.index.tolist()
        for name in wanted.columns:
            values = [None if pd.isna(value) else value for value in found[name].values.tolist()]
            assert values == [None if pd.isna(value) else value for value in wanted[name].tolist()]
        assert found["stage"].sel(obs="cell5").item() == wanted["stage"]["cell5"]
        assert found["n_genes"].groupby(found["cell type"]).mean().to_series().to_dict() == (
            wanted["n_genes"].groupby(wanted["cell type"].astype(str)).mean().to_dict()
        )


def test_arrays_have_the_dimensions_of_frames(imported: Imported) -> None:
    data = examples.dimensions()
    with imported("dimensions") as file, xarray.open_datatree(file, engine="hsparse") as tree:
        assert (tree["X"].dims, tree["obsm/X_pca"].dims) == (("obs", "var"), ("obs", "X_pca_dim_1"))
        assert tree["obsm/table/y"].dims == ("obs",)
        assert tree["obsm/table/y"].values.tolist() == data.obsm["table"]["y"].tolist()
        pairs = list(tree["obsp"].dataset.values())
        assert {array.dims for array in pairs} == {("obs", "obs_2")}
        assert pairs[0].indexes["obs_2"].tolist() == data.obs_names.tolist()
    with imported("dimensions") as file, xarray.open_dataset(file, engine="hsparse") as found:
        row = found["X"].sel(obs="cell7", var=["gene3", "gene4"]).load().data
        assert row.todense().tolist() == data["cell7", ["gene3", "gene4"]].X.toarray()[0].tolist()


def test_raw_has_columns_of_its_own(imported: Imported) -> None:
    data = examples.with_raw()
    with imported("with_raw") as file, xarray.open_datatree(file, engine="hsparse") as tree:
        assert tree["X"].sizes == {"obs": data.n_obs, "var": data.n_vars}
        assert tree["raw/X"].sizes == {"obs": data.n_obs, "raw_var": data.raw.n_vars}
        assert tree["raw/var/n"].dims == ("raw_var",)
        assert tree["raw"].dataset.indexes["raw_var"].tolist() == data.raw.var_names.tolist()


@pytest.mark.parametrize("name", ["plain", "empty", "without_x", "unstructured", "by_gene"])
def test_every_form_opens(imported: Imported, name: str) -> None:
    data = examples.EXAMPLES[name]()
    with imported(name) as file, xarray.open_datatree(file, engine="hsparse") as tree:
        assert tree["obs"].sizes["obs"] == data.n_obs
        assert tree["var"].dataset.indexes["var"].tolist() == data.var_names.tolist()
        if isinstance(tree.get("X"), xarray.DataArray):
            assert tree["X"].sizes == {"obs": data.n_obs, "var": data.n_vars}


def test_what_is_no_frame_keeps_its_dimensions(imported: Imported, url: str) -> None:
    """Arrays with names of AnnData's parts, in a domain that has none, or of other lengths."""
    with open_file(f"{url}/no-frames.h5", "w") as file:
        file["X"] = np.zeros((3, 2))
        file["obs"] = np.zeros(3)
        with xarray.open_dataset(file, engine="hsparse") as found:
            assert (found["X"].dims, found["obs"].dims) == (("X_dim_0", "X_dim_1"), ("obs_dim_0",))
        del file["obs"], file["X"]
        file["X"] = np.zeros((3, 2))
        file["obs"], file["var"] = pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [1, 2]})
        with xarray.open_dataset(file, engine="hsparse") as found:
            assert found["X"].dims == ("X_dim_0", "var")
