"""Tests that real data sets, if available, have the expected counts."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.datasets import (
    load_image_folder,
    load_jester,
    load_movielens,
    load_movielens_split,
    load_panel,
    load_traffic,
)


def test_movielens_100k(real_data):
    real_data("ml-100k.npz")
    ratings = load_movielens("100k", download=False)
    assert ratings.shape == (943, 1682)
    counts = np.bincount(ratings.ratings.astype(int))[1:]
    assert list(counts) == [6110, 11370, 27145, 34174, 21201]
    assert ratings.matrix().nnz == 100_000
    assert ratings.timestamps.min() > 8e8


def test_official_splits_of_movielens_100k(real_data):
    real_data("ml-100k.npz")
    parts = [load_movielens_split(f"u{k}", download=False)[1] for k in range(1, 6)]
    assert [part.sum() for part in parts] == [20_000] * 5
    assert (np.sum(parts, axis=0) == 1).all()
    for split in ("ua", "ub"):
        ratings, test = load_movielens_split(split, download=False)
        assert (np.bincount(ratings.users[test]) == 10).all()
    ratings, test = load_movielens_split("u1", download=False)
    assert len(np.unique(ratings.users[test])) == 459
    assert len(np.unique(ratings.items[~test])) == 1650


def test_movielens_1m(real_data):
    real_data("ml-1m.npz")
    ratings = load_movielens("1m", download=False)
    assert ratings.shape == (6040, 3952)
    assert ratings.matrix().nnz == 1_000_209
    assert ratings.ratings.mean() == pytest.approx(3.581564, abs=1e-6)
    assert (ratings.users == 0).sum() == 53
    assert (ratings.items == 2858 - 1).sum() == 3428


def test_jester(real_data):
    real_data("jester-1.npz")
    X = load_jester()
    assert np.isfinite(X).sum() == 1_810_455
    assert np.nanmin(X) == -9.95
    assert np.nanmax(X) == 10.0
    assert np.nanmean(X) == pytest.approx(0.87976, abs=1e-5)
    assert np.isfinite(X).all(axis=1).sum() == 7200


def test_panels(real_data):
    real_data("california_smoking.npz")
    panel = load_panel("smoking")
    assert panel.outcome.shape == (39, 31) == (len(panel.units), len(panel.years))
    assert list(panel.outcome[0, [0, 18, 30]]) == pytest.approx([123.0, 90.1, 41.6])
    assert panel.treated.sum() == 12
    assert panel.treated[0, panel.years >= 1989].all()
    real_data("basque_gdp.npz")
    panel = load_panel("basque")
    assert panel.outcome.shape == (18, 43)
    assert "Spain" in panel.units[0] or "Espa" in panel.units[0]
    assert (panel.years[0], panel.years[-1]) == (1955, 1997)


def test_traffic(real_data):
    real_data("losloop_speed.npz")
    traffic = load_traffic()
    assert traffic.speed.shape == (2016, 207)
    assert traffic.adjacency.shape == (207, 207)
    assert traffic.speed.mean() == pytest.approx(58.891, abs=1e-3)


def test_a_folder_of_photographs(real_data):
    folder = real_data("msrc_v2")
    read = load_image_folder(folder, size=(240, 320))
    assert len(read) == len(load_image_folder(folder))
    assert all(picture.shape == (240, 320) for picture in read.values())
