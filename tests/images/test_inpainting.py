"""Tests of `inpaint`: image types and sizes, observed pixels, accuracy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.interpolate import griddata

from ncarl.images import inpaint, inpainting, patches
from ncarl.images.inpainting import MaskedImage, insert_missing_values
from ncarl.metrics import psnr


def waves(height, width, channels=None):
    """A smooth image with values between 0 and 1."""
    y, x = np.mgrid[:height, :width]
    gray = 0.5 + 0.25 * np.sin(y / 3.0 + x / 7.0) + 0.25 * np.cos(x / 4.0)
    return gray[:, :, None] * np.linspace(0.4, 1.0, channels) if channels else gray


def holes(shape, share=0.4, seed=0):
    """Random mask of missing pixels, at least one of them observed."""
    mask = np.random.default_rng(seed).random(shape) < share
    mask.flat[0] = False
    return mask


@pytest.fixture(scope="module")
def result(photo):
    """Mask, result and error bars of a photograph with half of its pixels missing."""
    mask = holes(photo.shape[:2], 0.5)
    return mask, *inpaint(photo, mask, return_std=True)


@pytest.mark.parametrize(
    ("dtype", "channels"),
    [("uint8", None), ("uint16", 3), ("float32", 1), ("float64", 5)],
)
def test_dtype_and_observed_pixels_are_preserved(dtype, channels):
    full = 1.0 if dtype.startswith("f") else np.iinfo(dtype).max
    picture = (waves(20, 24, channels) * full).astype(dtype)
    mask = holes((20, 24))
    before = picture.copy()
    filled = inpaint(picture, mask)
    assert (filled.dtype, filled.shape) == (picture.dtype, picture.shape)
    assert (picture == before).all()
    assert (filled[~mask] == picture[~mask]).all()
    error = np.abs(filled[mask].astype(float) - picture[mask]).mean() / full
    assert error < 0.02


@settings(max_examples=20)
@given(
    height=st.integers(1, 14),
    width=st.integers(1, 14),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
    channels=st.sampled_from([None, 1, 2, 3, 4]),
)
def test_pictures_of_any_size_are_filled_within_the_range_of_what_is_known(
    height, width, share, seed, channels
):
    rng = np.random.default_rng(seed)
    shape = (height, width) if channels is None else (height, width, channels)
    picture = rng.random(shape) * 10.0 ** rng.integers(-3, 4)
    mask = holes(shape[:2], share, seed)
    filled = inpaint(picture, mask)
    assert np.isfinite(filled).all()
    assert (filled[~mask] == picture[~mask]).all()
    known = picture[~mask].reshape(-1, 1 if channels is None else channels)
    guess = filled.reshape(height * width, -1)
    assert (guess.min(axis=0) >= known.min(axis=0)).all() or channels in (2, 4)


def test_wide_hole_in_a_gradient_is_imputed_throughout():
    slope = np.add.outer(np.arange(48.0), np.arange(48.0))
    mask = np.zeros(slope.shape, dtype=bool)
    # Off center, since the mean of the image fits the center too.
    mask[4:28, 4:28] = True
    filled = inpaint(slope, mask)
    assert np.abs(filled - slope)[10:28, 10:28].max() < 5.0


def test_imputed_pixels_are_rounded_and_clipped():
    pixels = np.array([[[3, 9, 0, 0, 0]]], dtype=np.uint8)
    gaps = np.array([[[False, False, True, True, True]]])
    values = [np.array([4.6, -7.0, 400.0])]
    filled = insert_missing_values(MaskedImage(pixels, gaps), values)
    assert filled.tolist() == [[[3, 9, 5, 3, 9]]]


def test_result_is_equivariant_to_scale():
    factor = 255.0
    picture, mask = waves(18, 20, 3), holes((18, 20))
    filled = inpaint(picture, mask)
    again = inpaint(picture * factor - factor, mask)
    np.testing.assert_allclose(again / factor + 1.0, filled, atol=2e-4)


def test_threads_and_error_bars_do_not_change_the_result(photo, result, monkeypatch):
    mask, filled, _ = result
    monkeypatch.setattr("ncarl.engines.threads.available_cores", lambda: 1)
    assert (inpaint(photo, mask) == filled).all()


def test_large_image_is_processed_in_tiles(monkeypatch):
    picture, mask = waves(24, 40), holes((24, 40))
    whole = inpaint(picture, mask)
    monkeypatch.setattr(patches, "TILE_SIDE", 18)
    tiled = inpaint(picture, mask)
    assert (tiled[~mask] == picture[~mask]).all()
    assert np.abs(tiled - whole).max() < 0.02


def test_error_is_below_that_of_linear_interpolation(photo, result):
    mask, filled, _ = result
    at = np.argwhere(~mask)
    everywhere = np.argwhere(np.ones_like(mask))
    lines = griddata(at, photo[~mask].astype(float), everywhere, method="linear")
    near = griddata(at, photo[~mask].astype(float), everywhere, method="nearest")
    lines = np.where(np.isnan(lines), near, lines).reshape(photo.shape)
    ours = psnr(photo / 255.0, filled / 255.0)
    assert ours > psnr(photo / 255.0, lines / 255.0) + 0.5


def test_channels_with_different_masks_predict_each_other():
    gray = np.random.default_rng(0).random((24, 24))
    picture = np.stack([gray, 0.5 * gray, 1.0 - gray], axis=2)
    mask = holes(picture.shape, 0.3)
    mask[mask.all(axis=2)] = [False, True, True]
    error = np.abs(inpaint(picture, mask) - picture)[mask]
    alone = np.abs(inpaint(picture[:, :, :1], mask[:, :, :1]) - picture[:, :, :1])
    # White noise: neighbors are independent, channels are equal.
    assert error.mean() < 0.3 * alone[mask[:, :, :1]].mean()


def test_nan_is_missing_with_and_without_a_mask():
    picture = waves(16, 16)
    mask = holes(picture.shape)
    gappy = np.where(mask, np.nan, picture)
    assert (inpaint(gappy) == inpaint(picture, mask)).all()
    none = np.zeros(mask.shape, dtype=np.uint8)
    assert (inpaint(gappy, none) == inpaint(gappy)).all()
    same = inpaint(picture, none)
    assert (same == picture).all() and not np.shares_memory(same, picture)


def test_masked_array_entries_are_missing():
    picture, lost = waves(20, 24, 2), holes((20, 24))
    spoilt = np.where(lost[..., None], 9.0, picture)
    every = np.repeat(lost[..., None], 2, axis=2)
    expected = inpaint(picture, every)
    assert (inpaint(np.ma.array(spoilt, mask=every)) == expected).all()
    # Combined with a mask; uint8 arrays need none.
    left = every & (np.arange(24) < 12)[:, None]
    hidden = np.ma.array(spoilt, mask=left)
    assert (inpaint(hidden, every & ~left) == expected).all()
    gray = (picture[..., 0] * 99).astype(np.uint8)
    assert (inpaint(np.ma.array(gray, mask=lost)) == inpaint(gray, lost)).all()


def test_unsupported_pillow_modes_raise():
    image = pytest.importorskip("PIL.Image")
    gray = image.fromarray((waves(8, 8) * 99).astype(np.uint8))
    mask = np.eye(8, dtype=bool)
    assert (inpaint(gray, mask) == inpaint(np.asarray(gray), mask)).all()
    for mode in ("P", "CMYK"):
        with pytest.raises(ValueError, match=f"mode '{mode}'.*convert"):
            inpaint(gray.convert(mode), mask)


def test_alpha_is_kept_unless_it_is_missing():
    picture = (waves(16, 16, 4) * 255).astype(np.uint8)
    mask = holes((16, 16))
    filled = inpaint(picture, mask)
    assert (filled[:, :, 3] == picture[:, :, 3]).all()
    assert (filled[:, :, :3] == inpaint(picture[:, :, :3], mask)).all()
    every = np.repeat(mask[:, :, None], 4, axis=2)
    assert (inpaint(picture, every)[:, :, 3] != picture[:, :, 3]).any()
    joined = inpaint(picture, mask, alpha=False)
    assert (joined[:, :, 3] != picture[:, :, 3]).any()


def test_error_bars_match_the_errors(photo, result):
    mask, filled, std = result
    assert std.shape == photo.shape
    assert (std[~mask] == 0.0).all()
    assert (std[mask] > 0.0).all()
    error = (filled.astype(float) - photo)[mask]
    assert 0.6 < np.sqrt(np.mean(error**2) / np.mean(std[mask] ** 2)) < 1.6
    # Error bars and errors are correlated.
    long = std[mask] > np.median(std[mask])
    assert np.abs(error[long]).mean() > 1.5 * np.abs(error[~long]).mean()


@pytest.mark.parametrize(
    "color", [np.uint8(7), 1e300, np.array([7, 100, 250], dtype=np.uint8)]
)
def test_constant_image_has_zero_error_bars(color):
    picture = np.broadcast_to(color, (30, 30, *np.shape(color)))
    filled, std = inpaint(picture, holes((30, 30)), return_std=True)
    assert (filled == picture).all()
    assert (std == 0.0).all()
    assert (inpaint(picture, holes((30, 30))) == picture).all()


def test_error_bars_use_several_windows(monkeypatch):
    # A single window would lie in the constant half.
    monkeypatch.setattr(inpainting, "MAX_CALIBRATION_PIXELS", 0)
    monkeypatch.setattr(inpainting, "WINDOW_SIDE", 24)
    monkeypatch.setattr(inpainting, "WINDOW_SPLITS", 2)
    picture = np.full((24, 120), 0.5)
    picture[:, 66:] += np.random.default_rng(0).normal(0.0, 0.2, (24, 54))
    mask = holes(picture.shape, 0.3)
    filled, std = inpaint(picture, mask, return_std=True)
    mask[:, :70] = False
    error = (filled - picture)[mask]
    assert 0.6 < np.sqrt(np.mean(error**2) / np.mean(std[mask] ** 2)) < 1.6


def test_matrix_method_is_ncarl_for_each_channel():
    from ncarl import NCARL

    rng = np.random.default_rng(0)
    picture = rng.random((20, 3)) @ rng.random((3, 25))
    picture = np.stack([picture, picture.max() - picture], axis=2)[:, :, [0, 1, 1]]
    mask = holes((20, 25), 0.3)
    filled = inpaint(picture, mask, "matrix")
    X = np.where(mask, np.nan, picture[:, :, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = NCARL(max_iter=20, engine="threads").fit_transform(X)
    expected = np.clip(expected, np.nanmin(X), np.nanmax(X))
    np.testing.assert_allclose(filled[:, :, 0], expected)
    assert (filled[~mask] == picture[~mask]).all()


@pytest.mark.parametrize("method", ["patches", "matrix"])
def test_progress_option(method, capsys):
    inpaint(waves(12, 12), holes((12, 12)), method, progress=True)
    assert "inpaint" in capsys.readouterr().err


WRONG = [
    ((waves(4, 4), np.zeros((4, 5), bool)), "mask must have the image's shape"),
    ((waves(4, 4), np.zeros((4, 4))), "mask must be boolean"),
    ((waves(4, 4), np.ones((4, 4), bool)), "must have an observed pixel"),
    (
        (waves(4, 4, 3), np.zeros((4, 4, 3), bool) | ~np.eye(3, dtype=bool)[1]),
        "channel 0",
    ),
    ((waves(4, 4)[0], None), "image must have shape"),
    ((np.zeros((0, 4)), None), "image must have shape"),
    ((np.zeros((4, 4), complex), None), "integers or floats"),
    ((np.zeros((4, 4), np.uint8), None), "mask must be given"),
    ((np.full((4, 4), np.inf), np.eye(4, dtype=bool)), "finite where it is observed"),
    ((np.full((4, 4), 2**60), np.eye(4, dtype=bool)), "2\\*\\*53"),
    ((waves(4, 4), np.eye(4, dtype=bool), "magic"), "method must be"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_invalid_arguments_raise(arguments, words):
    with pytest.raises(ValueError, match=words):
        inpaint(*arguments)


def test_unsupported_combinations_raise():
    with pytest.raises(ValueError, match="return_std needs"):
        inpaint(waves(6, 6), np.eye(6, dtype=bool), "matrix", return_std=True)
    with pytest.raises(ValueError, match="at least two channels"):
        inpaint(waves(6, 6), np.eye(6, dtype=bool), alpha=True)
