"""Tests of Jester, panel, traffic and image loaders, and of the catalog."""

from __future__ import annotations

import builtins
import zipfile

import numpy as np
import pytest
import sklearn.datasets

from ncarl.datasets import (
    DataNotFoundError,
    available,
    describe,
    load_image_folder,
    load_jester,
    load_movielens,
    load_panel,
    load_sample_image,
    load_traffic,
)
from ncarl.datasets.catalog import CATALOG, cache_folder
from ncarl.exceptions import BrokenFileError

JESTER = np.array([[1.25, np.nan, -9.95], [np.nan, 10.0, 0.0]])


@pytest.fixture
def small_jester(monkeypatch):
    monkeypatch.setattr("ncarl.datasets.others.JESTER_SHAPE", (2, 3))


def jester_table():
    rows = np.where(np.isnan(JESTER), 99, JESTER)
    counts = np.isfinite(JESTER).sum(axis=1)
    return "".join(
        f"{count}," + ",".join(map(str, row)) + "\n"
        for count, row in zip(counts, rows, strict=True)
    )


def test_jester_is_read_from_arrays_and_from_tables(small_jester, data, tmp_path):
    coded = np.where(np.isnan(JESTER), -32768, np.round(100 * np.nan_to_num(JESTER)))
    np.savez(tmp_path / "j.npz", rating_x100=coded.astype(np.int16))
    (data / "jester-data-1.csv").write_text(jester_table())
    with zipfile.ZipFile(tmp_path / "j.zip", "w") as archive:
        archive.writestr("jester-data-1.csv", jester_table())
    sources = (tmp_path / "j.npz", tmp_path / "j.zip", data, None)
    for source in sources:
        assert np.array_equal(load_jester(source=source), JESTER, equal_nan=True)


def test_invalid_jester_tables_raise(small_jester, tmp_path, monkeypatch):
    path = tmp_path / "jester.csv"
    table = jester_table()
    for text in (table.replace("2,", "3,", 1), "a,b\n", table.replace("10.0", "11")):
        path.write_text(text)
        with pytest.raises(BrokenFileError, match=r"jester\.csv"):
            load_jester(source=path)
    monkeypatch.setattr("ncarl.datasets.others.JESTER_SHAPE", (5, 3))
    path.write_text(table)
    with pytest.raises(BrokenFileError, match="5 x 3 ratings"):
        load_jester(source=path)
    np.savez(tmp_path / "j.npz", rating_x100=np.ones((5, 3)))
    with pytest.raises(BrokenFileError, match="kind i"):
        load_jester(source=tmp_path / "j.npz")


def test_panels_have_units_years_and_treatment(data):
    outcome, year = np.arange(6.0).reshape(2, 3), np.array([1970, 1971, 1972], np.int16)
    treatment = np.array([[0, 0, 1], [0, 0, 0]], np.int8)
    np.savez(
        data / "california_smoking.npz", outcome=outcome, year=year, treatment=treatment
    )
    panel = load_panel("smoking")
    assert np.array_equal(panel.outcome, outcome)
    assert panel.units == ("California", "control state 1")
    assert list(panel.years) == [1970, 1971, 1972]
    assert np.array_equal(panel.treated, treatment == 1)
    np.savez(data / "x.npz", outcome=outcome, year=year, unit=np.array(["A", "B"]))
    panel = load_panel("basque", source=data / "x.npz")
    assert panel.units == ("A", "B")
    assert panel.treated is None
    assert panel.name == "basque"


WRONG_PANELS = {
    "years": {"year": np.arange(4)},
    "names": {"unit": np.array(["A"])},
    "treatment of another size": {"treatment": np.zeros((3, 2), np.int8)},
    "treatment that is a dose": {"treatment": np.full((2, 3), 2)},
    "words": {"outcome": np.full((2, 3), "a")},
}


@pytest.mark.parametrize("arrays", WRONG_PANELS.values(), ids=WRONG_PANELS)
def test_inconsistent_panels_raise(arrays, tmp_path):
    whole = {"outcome": np.ones((2, 3)), "year": np.arange(3), **arrays}
    np.savez(tmp_path / "p.npz", **whole)
    with pytest.raises(BrokenFileError, match=r"p\.npz"):
        load_panel("smoking", source=tmp_path / "p.npz")


def test_traffic_has_times_as_rows(data, tmp_path):
    speed = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = {"speed": speed, "sensor": np.array([7, 9]), "adjacency": np.eye(2)}
    np.savez(data / "losloop_speed.npz", **arrays)
    traffic = load_traffic()
    assert np.array_equal(traffic.speed, speed.T)
    assert traffic.speed.dtype == np.float64
    assert list(traffic.sensors) == [7, 9]
    assert np.array_equal(traffic.adjacency, np.eye(2))
    for wrong in ({"sensor": np.arange(3)}, {"adjacency": np.eye(3)}):
        np.savez(tmp_path / "t.npz", **arrays | wrong)
        with pytest.raises(BrokenFileError, match="for each sensor"):
            load_traffic(source=tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (load_jester, "Goldberg"),
        (lambda: load_panel("smoking"), "Abadie, A. Diamond and J. Hainmueller"),
        (lambda: load_panel("basque"), "Gardeazabal"),
        (load_traffic, "T-GCN"),
    ],
)
def test_missing_data_error_names_the_source(load, words):
    with pytest.raises(DataNotFoundError, match=words) as caught:
        load()
    for hint in ("NCARL_DATA is not set", "source=", ".npz", "They hold: array"):
        assert hint in str(caught.value)


def test_unknown_names_and_steps_raise():
    for call in (load_panel, describe, load_sample_image):
        with pytest.raises(ValueError, match="name must be one of"):
            call("nothing")
    with pytest.raises(ValueError, match="step must be a whole number from 1 to 427"):
        load_sample_image(step=428)


@pytest.mark.parametrize("name", CATALOG)
def test_every_data_set_has_terms_a_citation_and_a_loader(name):
    source, text = CATALOG[name], describe(name)
    for part in (name, source.terms, source.citation, source.publisher, source.loader):
        assert part
        assert part in text
    assert source.url.startswith("https://")


def test_loaders_in_the_catalog_match_its_entries(data):
    calls = {
        "load_jester": load_jester,
        "load_movielens": lambda key: load_movielens(key, download=False),
        "load_panel": load_panel,
        "load_traffic": load_traffic,
    }
    for source in CATALOG.values():
        if source.files:
            with pytest.raises(DataNotFoundError, match=source.files[0]):
                eval(source.loader, calls)


def test_available_lists_existing_data(data, cache):
    assert [name for name, there in available().items() if there] == ["china", "flower"]
    (data / "ml-1m.zip").touch()
    cache.mkdir(parents=True)
    (cache / "basque_gdp.npz").touch()
    found = {name for name, there in available().items() if there}
    assert found == {"ml-1m", "basque", "china", "flower"}


def test_environment_variable_must_name_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("NCARL_DATA", str(tmp_path / "typo"))
    with pytest.raises(NotADirectoryError, match=r"NCARL_DATA .*typo"):
        load_traffic()


def test_cache_folder_of_every_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    folders = {"linux": "xdg", "darwin": "Library/Caches", "win32": "local"}
    for system, folder in folders.items():
        monkeypatch.setattr("sys.platform", system)
        assert cache_folder() == tmp_path / folder / "ncarl"
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "ncarl"


def write_image(path, pixels, mode=None):
    from PIL import Image

    image = Image.fromarray(np.asarray(pixels, dtype=np.uint8))
    (image.convert(mode) if mode else image).save(path)


def test_image_folder_is_read_in_order(tmp_path, rng):
    color = rng.integers(0, 256, (4, 6, 3))
    gray = rng.integers(0, 256, (4, 6))
    write_image(tmp_path / "b.png", color)
    write_image(tmp_path / "a.PNG", gray)
    write_image(tmp_path / "c.bmp", rng.integers(0, 256, (6, 4, 3)))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "folder.png").mkdir()
    read = load_image_folder(tmp_path)
    assert list(read) == ["a.PNG", "b.png", "c.bmp"]
    assert read["a.PNG"] == pytest.approx(gray / 255.0)
    red, green, blue = np.moveaxis(color, 2, 0)
    weighted = (0.299 * red + 0.587 * green + 0.114 * blue) / 255.0
    assert read["b.png"] == pytest.approx(weighted)
    assert load_image_folder(tmp_path, gray=False)["b.png"] == pytest.approx(
        color / 255
    )
    assert list(load_image_folder(tmp_path, size=(4, 6))) == ["a.PNG", "b.png"]
    write_image(tmp_path / "w.png", np.full((20, 31, 3), 255))
    assert load_image_folder(tmp_path, names=["w"])["w.png"].max() <= 1.0
    assert list(load_image_folder(tmp_path, names=["c.bmp", "b"])) == ["b.png", "c.bmp"]


def test_missing_images_are_named(tmp_path):
    with pytest.raises(DataNotFoundError, match="folder must be"):
        load_image_folder(tmp_path / "none")
    write_image(tmp_path / "a.png", np.zeros((2, 2)))
    with pytest.raises(DataNotFoundError, match=r"no picture b\.png"):
        load_image_folder(tmp_path, names=["a", "b.png"])
    with pytest.raises(ValueError, match="names must be a list"):
        load_image_folder(tmp_path, names="a")
    write_image(tmp_path / "deep.tif", np.zeros((2, 2)), mode="F")
    with pytest.raises(BrokenFileError, match=r"deep\.tif.* eight bits"):
        load_image_folder(tmp_path, names=["deep"])
    (tmp_path / "torn.png").write_bytes((tmp_path / "a.png").read_bytes()[:30])
    with pytest.raises(BrokenFileError, match=r"torn\.png"):
        load_image_folder(tmp_path, names=["torn"])


@pytest.mark.parametrize("name", ["china", "flower"])
def test_sample_images_are_shrunk_by_block_means(name):
    whole = load_sample_image(name)
    pixels = sklearn.datasets.load_sample_image(f"{name}.jpg") / 255.0
    assert whole == pytest.approx(pixels @ [0.299, 0.587, 0.114])
    assert 0.0 <= whole.min() < whole.max() <= 1.0
    small = load_sample_image(name, step=4)
    assert small.shape == (106, 160)
    assert small[5, 7] == pytest.approx(whole[20:24, 28:32].mean())
    colors = load_sample_image(name, gray=False, step=4)
    assert colors.shape == (106, 160, 3)
    assert colors @ [0.299, 0.587, 0.114] == pytest.approx(small)


def test_missing_pillow_error_names_the_extra(monkeypatch, tmp_path):
    normal = builtins.__import__

    def find_spec_without(name, *others):
        if name.split(".")[0] == "PIL":
            raise ModuleNotFoundError("no PIL", name="PIL")
        return normal(name, *others)

    monkeypatch.setattr(builtins, "__import__", find_spec_without)
    for call in (load_sample_image, lambda: load_image_folder(tmp_path)):
        with pytest.raises(ModuleNotFoundError, match=r"ncarl\[cli\]"):
            call()


def test_all_names_exist():
    from ncarl import datasets

    for name in datasets.__all__:
        assert getattr(datasets, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = datasets.nothing
