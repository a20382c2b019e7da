"""`inpaint`: read an image and its mask, fill missing pixels, calibrate the variances.

Two methods: patches (`ncarl.images.patches`) on standardized, decorrelated channels,
and matrix completion of each channel by `NCARL`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.engines.cores import limit_blas_threads
from ncarl.estimators.ncarl import NCARL
from ncarl.images.patches import ImagePlanes, count_stages, fill_planes
from ncarl.progress import progress_bar
from ncarl.validation import check_choice

#: Pillow modes whose numbers are palette indices or inks.
UNSUPPORTED_PIL_MODES = ("P", "PA", "CMYK")
#: Standard deviation, relative to the peak, below which an image counts as constant.
CONSTANT_TOL = 1e-12
#: Observed pixels that channel means and covariances are estimated from.
MAX_SAMPLED_PIXELS = 1_000_000
#: More channels than this with masks of their own are completed one by one.
MAX_JOINT_CHANNELS = 4
#: Minimum number of pixels observed in all channels to estimate their covariance.
MIN_JOINT_PIXELS = 50
#: Parameters of `NCARL` for photographs (``method="matrix"``).
ALPHA, N_NEIGHBORS, MAX_ITER = 100.0, 10, 20
#: Pixels up to which the whole image is used to calibrate variances, and the fraction
#: of observed pixels that is held out.
MAX_CALIBRATION_PIXELS, HELD_OUT_FRACTION = 192 * 192, 0.1
#: Larger images are calibrated on ``2**WINDOW_SPLITS`` windows of this side, less a
#: seam, since patches across the border of two windows are not part of the image.
WINDOW_SPLITS, WINDOW_SIDE, SEAM_WIDTH = 3, 64, 8
#: With fewer held-out pixels than this, variances are not calibrated.
MIN_HELD_OUT_PIXELS = 20


@limit_blas_threads(1)
def inpaint(
    image: Any,
    mask: Any = None,
    method: str = "patches",
    *,
    alpha: bool | None = None,
    return_std: bool = False,
    random_state: int | None = 0,
    progress: bool = False,
) -> Any:
    """Fill the missing pixels of an image; observed pixels are kept bit for bit.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, channels)
        Gray or color, of integers (8 or 16 bits, ...) or floats; any size.
    mask : array of bool, optional
        True (or an integer other than 0) where a pixel is missing: for all channels,
        (height, width), or in the shape of the image. NaN and masked entries of a
        masked array are missing too.
    method : {"patches", "matrix"}, default="patches"
        "patches" learns a Gaussian mixture of the patches of this image. "matrix"
        completes each channel as one matrix, as in the paper; it is far less accurate
        on photographs.
    alpha : bool, optional
        Whether the last channel is transparency: not filled if ``mask`` has no
        channels, else on its own. By default True for two or four channels.
    return_std : bool, default=False
        Also return standard deviations, calibrated on held-out observed pixels
        (``method="patches"``).
    random_state : int or None, default=0
        Seed of the sample of patches to learn from; None for a random seed.
    progress : bool, default=False
        Show a progress bar.

    Returns
    -------
    filled : array, in the shape and dtype of ``image``
        Filled pixels lie within the range of the observed pixels of their channel.
    std : array of float, same shape
        0 at observed pixels; only with ``return_std``.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.images import inpaint
    >>> truth = np.add.outer(np.arange(20), 2 * np.arange(24)).astype(np.uint8)
    >>> lost = np.random.default_rng(0).random(truth.shape) < 0.4
    >>> filled = inpaint(truth, lost)
    >>> filled.dtype, int(np.abs(filled.astype(int) - truth).max()) <= 2
    (dtype('uint8'), True)
    """
    check_choice("method", method, ("patches", "matrix"))
    if return_std and method == "matrix":
        raise ValueError("return_std needs method='patches', got method='matrix'")
    pixels, missing_mask = read_image(image, mask)
    planes, missing = _channels_first(pixels), _channels_first(missing_mask).copy()
    channels = len(planes)
    if alpha and channels < 2:
        raise ValueError(f"alpha=True needs at least two channels, got {channels}")
    has_alpha = channels in (2, 4) if alpha is None else bool(alpha)
    if has_alpha and (mask is None or np.ndim(mask) == 2 or np.shape(mask)[2] == 1):
        # A mask without channels applies to colors only, not to transparency.
        missing[-1] = _channels_first(_missing_in_image(image))[-1]
    groups = _channel_groups(missing, has_alpha)
    jobs = [(g, MaskedImage(planes[g], missing[g])) for g in groups if missing[g].any()]
    for group, picture in jobs:
        _check_observed(picture, group.start)
    filled, std = planes.copy(), np.zeros(planes.shape if return_std else (0,))
    rng = np.random.default_rng(random_state)
    for group, picture in jobs:
        if method == "patches":
            values, deviation = _fill_by_patches(picture, rng, return_std, progress)
        else:
            values, deviation = _fill_as_matrix(picture, progress), None
        filled[group] = insert_missing_values(picture, values)
        if deviation is not None and return_std:
            std[group] = np.where(picture.missing_mask, deviation, 0.0)

    def channels_last(array: Array) -> Array:
        if pixels.ndim == 2:
            return array[0]
        return np.ascontiguousarray(np.moveaxis(array, 0, 2))

    if return_std:
        return channels_last(filled), channels_last(std)
    return channels_last(filled)


def _channels_first(array: Array) -> Array:
    """View of an image of two or three axes with shape (channels, height, width)."""
    return array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)


def _channel_groups(missing: Array, has_alpha: bool) -> list[slice]:
    channels = len(missing)
    colors = channels - has_alpha
    groups = [slice(0, colors)]
    if colors > MAX_JOINT_CHANNELS and (missing[:colors] != missing[0]).any():
        groups = [slice(k, k + 1) for k in range(colors)]
    return [*groups, slice(colors, channels)] if has_alpha else groups


def _check_observed(picture: MaskedImage, first_channel: int) -> None:
    empty = picture.missing_mask.all(axis=(1, 2))
    if empty.all() and first_channel == 0:
        height, width = picture.missing_mask.shape[1:]
        raise ValueError(
            f"image must have an observed pixel, got {height} x {width} of which all "
            "are missing; True in mask means missing"
        )
    if empty.any():
        raise ValueError(
            "image must have an observed pixel in each channel, got none in channel "
            f"{first_channel + int(np.argmax(empty))}; leave this channel out"
        )


def _fill_by_patches(
    picture: MaskedImage, rng: np.random.Generator, return_std: bool, progress: bool
) -> tuple[list[Array], Array | None]:
    """Values of missing pixels, and standard deviations if asked for, by patches."""
    transform, shape = fit_channel_transform(picture), picture.pixels.shape
    if transform.scale == 0.0:
        flat = np.zeros(shape)
        return transform.inverse_transform(flat, picture.missing_mask), flat
    planes = _make_planes(transform, picture)
    n_stages = count_stages(planes.observed) + return_std
    with progress_bar(progress, n_stages, "inpaint") as advance:
        filled, variance = fill_planes(planes, rng, advance)
        filled = filled.reshape(shape)
        values = transform.inverse_transform(filled, picture.missing_mask)
        if not return_std:
            return values, None
        factor = calibrate_variance(picture, transform, rng)
        advance("error bars")
    variance = np.broadcast_to(variance, shape)
    return values, transform.inverse_transform_std(variance * factor[:, None, None])


def _fill_as_matrix(picture: MaskedImage, progress: bool) -> list[Array]:
    values = []
    with progress_bar(progress, len(picture.pixels), "inpaint") as advance:
        for channel, missing in zip(picture.pixels, picture.missing_mask, strict=True):
            X = np.where(missing, np.nan, channel.astype(np.float64))
            model = NCARL(ALPHA, N_NEIGHBORS, max_iter=MAX_ITER, engine="threads")
            with warnings.catch_warnings():
                # Rows without an observed pixel get the mean; 20 steps need not
                # converge.
                warnings.simplefilter("ignore")
                filled = model.fit(X).transform(X) if missing.any() else X
            values.append(filled[missing])
            advance(f"channel {len(values)}")
    return values


def read_image(image: Any, mask: Any) -> tuple[Array, Array]:
    """An image as an array, and the mask of its missing pixels in the same shape."""
    if getattr(image, "mode", None) in UNSUPPORTED_PIL_MODES:
        raise ValueError(
            f"image is a Pillow image of mode {image.mode!r}, whose numbers are not "
            "gray or red, green and blue; give image.convert('RGB')"
        )
    pixels = np.asarray(image)
    if pixels.ndim not in (2, 3) or pixels.size == 0:
        raise ValueError(
            "image must have shape (height, width) or (height, width, channels), none "
            f"of them 0, got {pixels.shape}"
        )
    if pixels.dtype.kind not in "uif":
        raise ValueError(
            f"image must hold integers or floats, got dtype {pixels.dtype}"
        )
    if mask is None and pixels.dtype.kind != "f" and not np.ma.isMaskedArray(image):
        raise ValueError(
            "mask must be given: an image of integers has no NaN that could stand for "
            "a missing pixel"
        )
    missing_mask = _broadcast_mask(pixels.shape, mask) | _missing_in_image(image)
    observed = pixels[~missing_mask]
    if pixels.dtype.kind == "f" and not np.isfinite(observed).all():
        raise ValueError(
            "image must be finite where it is observed, got infinite pixels; mark "
            "them in mask"
        )
    integers = pixels.dtype.kind != "f" and observed.size
    if integers and max(-int(observed.min()), int(observed.max())) > 2**53:
        raise ValueError(
            "image must hold integers of at most 2**53, got larger ones; divide them, "
            "or give floats"
        )
    return pixels, missing_mask


def _missing_in_image(image: Any) -> Array:
    missing = np.isnan(np.asarray(image))
    masked = isinstance(image, np.ma.MaskedArray)
    return missing | np.ma.getmaskarray(image) if masked else missing


def _broadcast_mask(shape: tuple[int, ...], mask: Any) -> Array:
    if mask is None:
        return np.broadcast_to(np.False_, shape)
    marks = np.asarray(mask)
    if marks.dtype.kind not in "bui":
        raise ValueError(
            "mask must be boolean, or integers that are not 0 where a pixel is "
            f"missing, got dtype {marks.dtype}"
        )
    if marks.shape not in {shape[:2], (*shape[:2], 1), shape}:
        raise ValueError(
            f"mask must have the image's shape, {shape}, or its height and width, "
            f"{shape[:2]}, got {marks.shape}"
        )
    marks = marks.reshape(shape if len(shape) == 2 else (*shape[:2], -1))
    return np.broadcast_to(marks != 0, shape)


def insert_missing_values(picture: MaskedImage, values: list[Array]) -> Array:
    """Copy of the pixels with ``values`` at missing ones, within the observed range."""
    result = picture.pixels.copy()
    channels = zip(result, picture.missing_mask, values, strict=True)
    for channel, missing, guess in channels:
        if len(guess) == 0:
            continue
        observed = channel[~missing]
        clipped = np.clip(guess, float(observed.min()), float(observed.max()))
        if result.dtype.kind != "f":
            clipped = np.rint(clipped)
        channel[missing] = clipped.astype(result.dtype)
    return result


@dataclass(frozen=True)
class MaskedImage:
    """Pixels and mask of an image, both of shape (channels, height, width)."""

    pixels: Array  # as given; anything at missing pixels
    missing_mask: Array  # True where a pixel is missing in a channel

    @property
    def shares_mask(self) -> bool:
        """Whether all channels have the same mask."""
        return bool((self.missing_mask == self.missing_mask[:1]).all())


@dataclass(frozen=True)
class ChannelTransform:
    """Centering, rotation and scaling of the channels of an image."""

    peak: float  # the largest observed absolute value, or 1
    mean: Array  # (channels,), means of the observed pixels, divided by the peak
    rotation: Array  # (channels, channels), columns are the transformed channels
    scale: float  # of the first transformed channel; 0 for a constant image

    def transform(self, picture: MaskedImage) -> Array:
        """Transformed pixels, 0 at missing ones; float32, (channels, height, width)."""
        scaled = np.zeros(picture.pixels.shape, dtype=np.float32)
        channels = zip(picture.pixels, picture.missing_mask, self.mean, strict=True)
        for k, (channel, missing, mean) in enumerate(channels):
            # In place, and one channel at a time: photographs can be large.
            scaled[k, ~missing] = (channel[~missing] / self.peak - mean) / self.scale
        return np.tensordot(self.rotation.T.astype(np.float32), scaled, axes=1)

    def inverse_transform(self, values: Array, missing_mask: Array) -> list[Array]:
        """Values of the missing pixels of each channel, in the units of the image."""
        result = []
        channels = zip(self.rotation, missing_mask, self.mean, strict=True)
        for weights, missing, mean in channels:
            pairs = zip(weights, values, strict=True)
            channel = sum(w * plane[missing].astype(np.float64) for w, plane in pairs)
            result.append((channel * self.scale + mean) * self.peak)
        return result

    def inverse_transform_std(self, variance: Array) -> Array:
        """Standard deviations in the units of the image, from transformed variances."""
        summed = np.tensordot(self.rotation**2, variance.astype(np.float64), axes=1)
        return np.sqrt(np.maximum(summed, 0.0)) * self.scale * self.peak


def fit_channel_transform(picture: MaskedImage) -> ChannelTransform:
    """Channel transform that gives the first channel mean 0 and variance 1.

    Channels with one mask are rotated to their principal components.
    """
    channels = len(picture.pixels)
    pairs = zip(picture.pixels, picture.missing_mask, strict=True)
    observed = [channel[~missing] for channel, missing in pairs]
    ends = [(float(values.min()), float(values.max())) for values in observed]
    peak = max(max(-low, high) for low, high in ends) or 1.0
    sample = [
        v[:: max(1, len(v) // MAX_SAMPLED_PIXELS)].astype(np.float64) / peak
        for v in observed
    ]
    mean = np.array([np.mean(values) for values in sample])
    variances = np.array([np.var(values) for values in sample])
    rotation, variance = np.eye(channels), float(variances.mean())
    if picture.shares_mask and channels > 1:
        colors = np.stack(sample) - mean[:, None]
        values, vectors = np.linalg.eigh(colors @ colors.T / colors.shape[1])
        # Fix the sign of each eigenvector, so that results do not depend on LAPACK.
        signs = np.where(vectors.sum(axis=0) < 0.0, -1.0, 1.0)
        rotation = vectors[:, ::-1] * signs[::-1]
        variance = float(values[-1])
    scale = float(np.sqrt(max(variance, 0.0)))
    scale = scale if scale > CONSTANT_TOL else 0.0
    return ChannelTransform(peak, mean, rotation, scale)


def _make_planes(transform: ChannelTransform, picture: MaskedImage) -> ImagePlanes:
    """Planes of an image: channels with one mask as channels, others as layers."""
    observed, values = ~picture.missing_mask, transform.transform(picture)
    if picture.shares_mask:
        return ImagePlanes(values[:, None], observed[:1], np.eye(1))
    # The covariance where all channels are observed; diagonal if that is rare.
    pairs = zip(values, observed, strict=True)
    variances = [np.mean(v[k].astype(np.float64) ** 2) for v, k in pairs]
    covariance = diagonal = np.diag(np.maximum(variances, 1e-3))
    joint = observed.all(axis=0)
    if joint.sum() >= MIN_JOINT_PIXELS:
        pixels = values[:, joint].astype(np.float64)
        # Shrinkage keeps it positive definite where channels repeat each other.
        covariance = 0.99 * (pixels @ pixels.T / pixels.shape[1]) + 0.01 * diagonal
    return ImagePlanes(values[None], observed, covariance)


def calibrate_variance(
    picture: MaskedImage, transform: ChannelTransform, rng: np.random.Generator
) -> Array:
    """Factor of the variances of each channel of the planes.

    Some observed pixels of parts of the image are held out and filled from the rest;
    the factor is their mean squared error over their mean model variance.
    """
    part, inside = _calibration_windows(picture)
    # A separate stream: the mask may have been drawn from the same seed.
    rng = rng.spawn(1)[0]
    held_out = rng.random(inside.shape) < HELD_OUT_FRACTION
    held_out &= inside & ~part.missing_mask.any(axis=0)
    harder = MaskedImage(part.pixels, part.missing_mask | held_out)
    too_few = held_out.sum() < MIN_HELD_OUT_PIXELS
    if too_few or harder.missing_mask.all(axis=(1, 2)).any():
        return np.ones(len(picture.pixels))
    planes = _make_planes(transform, harder)
    values, variance = fill_planes(planes, rng, lambda note: None)
    shape = part.pixels.shape
    truth = transform.transform(part)[:, held_out]
    error = values.reshape(shape)[:, held_out] - truth
    expected = np.broadcast_to(variance, shape)[:, held_out]
    return np.mean(error**2, axis=1) / np.mean(expected, axis=1)


def _calibration_windows(picture: MaskedImage) -> tuple[MaskedImage, Array]:
    """Windows around missing pixels side by side, and the mask of pixels off the seams.

    Several windows, since a single one could lie in a flat part of the image.
    """
    height, width = picture.missing_mask.shape[1:]
    if height * width <= MAX_CALIBRATION_PIXELS:
        return picture, np.ones((height, width), dtype=bool)
    missing_places = np.argwhere(picture.missing_mask.any(axis=0))
    places = _bisect_centers(missing_places, WINDOW_SPLITS)
    cuts = [(slice(None), _window(y, height), _window(x, width)) for y, x in places]
    pixels = np.concatenate([picture.pixels[cut] for cut in cuts], axis=2)
    missing = np.concatenate([picture.missing_mask[cut] for cut in cuts], axis=2)
    inside = np.ones((missing.shape[1], missing.shape[2] // len(cuts)), dtype=bool)
    inside[:, :SEAM_WIDTH] = inside[:, -SEAM_WIDTH:] = False
    return MaskedImage(pixels, missing), np.tile(inside, len(cuts))


def _bisect_centers(places: Array, splits: int) -> list[Array]:
    """Medians of groups of places, bisected ``splits`` times along the longer side."""
    if splits == 0 or len(places) < 2:
        return [np.median(places, axis=0).astype(np.int64)]
    longer = int(np.argmax(np.ptp(places, axis=0)))
    halves = np.array_split(places[np.argsort(places[:, longer], kind="stable")], 2)
    return [center for half in halves for center in _bisect_centers(half, splits - 1)]


def _window(center: int, size: int) -> slice:
    """Side of a window around a place, inside an image of this size."""
    first = max(0, min(int(center) - WINDOW_SIDE // 2, size - WINDOW_SIDE))
    return slice(first, min(size, first + WINDOW_SIDE))
