"""`inpaint`: missing pixels filled in."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from ncarl.core.types import Array
from ncarl.images.matrix import filled_as_matrix
from ncarl.images.patch_mode import patch_mode, trial
from ncarl.images.picture import Picture, absent, put_back, read_picture
from ncarl.progress import progress_bar

METHODS = ("patches", "matrix")
#: Channels with gaps of their own beyond this number are filled one by one.
MOST_LAYERS = 4


@overload
def inpaint(
    image: Any,
    mask: Any = ...,
    method: str = ...,
    *,
    alpha: bool | None = ...,
    return_std: Literal[False] = ...,
    random_state: int | None = ...,
    progress: bool = ...,
) -> Array: ...
@overload
def inpaint(
    image: Any,
    mask: Any = ...,
    method: str = ...,
    *,
    alpha: bool | None = ...,
    return_std: Literal[True],
    random_state: int | None = ...,
    progress: bool = ...,
) -> tuple[Array, Array]: ...
def inpaint(
    image: Any,
    mask: Any = None,
    method: str = "patches",
    *,
    alpha: bool | None = None,
    return_std: bool = False,
    random_state: int | None = 0,
    progress: bool = False,
) -> Array | tuple[Array, Array]:
    """The picture with its missing pixels filled in, all others bit for bit.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, channels)
        Grey or colour, of whole numbers (8 or 16 bits, ...) or floats; any size.
    mask : array of bool, optional
        True where a pixel is missing: one for all channels, (height, width), or in
        the shape of the image. Whole numbers count as missing unless they are 0. NaN
        in an image of floats and what a masked array hides is missing too, and all
        that is without a mask.
    method : {"patches", "matrix"}, default="patches"
        "patches" learns how small patches of this picture look and fills each gap
        from the patches around it. "matrix" completes each channel as one matrix, as
        in the paper; it is far less exact on photographs.
    alpha : bool, optional
        Whether the last channel is transparency: it stays as it is where ``mask`` has
        no channels, and is filled on its own elsewhere. By default so if there are two
        or four channels.
    return_std : bool, default=False
        Whether to give standard deviations too (``method="patches"``). This hides
        some known pixels to see how far off filled ones are, and takes longer.
    random_state : int or None, default=0
        Seed of which patches to learn from; None for another one each time.
    progress : bool, default=False
        Show a progress bar.

    Returns
    -------
    filled : array
        In the shape and dtype of ``image``. Filled pixels lie within the range of what
        is known of their channel.
    std : array of float, same shape
        How far off filled pixels may be, 0 at known ones; only if ``return_std``.

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
    if method not in METHODS:
        raise ValueError(f"method must be 'patches' or 'matrix', got {method!r}")
    if return_std and method == "matrix":
        raise ValueError("return_std needs method='patches', got method='matrix'")
    pixels, gaps = read_picture(image, mask)
    shape = pixels.shape
    planes, missing = _first(pixels), _first(gaps).copy()
    transparent = _transparent(len(planes), alpha)
    if transparent and (mask is None or np.ndim(mask) == 2 or np.shape(mask)[2] == 1):
        # Such a mask is about colours, and leaves transparency as it is.
        missing[-1] = _first(absent(image))[-1]
    groups = _groups(missing, transparent)
    jobs = [(g, Picture(planes[g], missing[g])) for g in groups if missing[g].any()]
    for group, picture in jobs:
        _check_known(picture, group, shape)
    filled, std = planes.copy(), np.zeros(planes.shape if return_std else (0,))
    rng = np.random.default_rng(random_state)
    way = _by_patches if method == "patches" else _as_matrix
    for group, picture in jobs:
        values, deviation = way(picture, rng, return_std, progress)
        filled[group] = put_back(picture.pixels, picture.gaps, values)
        if deviation is not None:
            std[group] = np.where(picture.gaps, deviation, 0.0)
    if return_std:
        return _last(filled, shape), _last(std, shape)
    return _last(filled, shape)


def _first(array: Array) -> Array:
    """An image with its channels first, of which there is at least one."""
    return array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)


def _last(planes: Array, shape: tuple[int, ...]) -> Array:
    """Channels in their old place."""
    return (
        planes[0]
        if len(shape) == 2
        else np.ascontiguousarray(np.moveaxis(planes, 0, 2))
    )


def _transparent(channels: int, alpha: bool | None) -> bool:
    """Whether the last channel is transparency."""
    if alpha and channels < 2:
        raise ValueError(f"alpha=True needs at least two channels, got {channels}")
    return channels in (2, 4) if alpha is None else bool(alpha)


def _groups(missing: Array, transparent: bool) -> list[slice]:
    """Channels to be filled together."""
    channels = len(missing)
    colours = channels - transparent
    first = missing[:colours]
    apart = colours > MOST_LAYERS and not bool((first == first[:1]).all())
    groups = [slice(0, colours)]
    if apart:
        groups = [slice(k, k + 1) for k in range(colours)]
    return [*groups, slice(colours, channels)] if transparent else groups


def _check_known(picture: Picture, group: slice, shape: tuple[int, ...]) -> None:
    """Raise if there is nothing to learn from in a channel."""
    empty = picture.gaps.all(axis=(1, 2))
    if not empty.any():
        return
    if empty.all() and group.start == 0:
        raise ValueError(
            f"image must have a known pixel, got {shape[0]} x {shape[1]} of which all "
            "are missing; True in mask means missing"
        )
    channel = group.start + int(np.flatnonzero(empty)[0])
    raise ValueError(
        f"image must have a known pixel in each channel, got none in channel "
        f"{channel}; leave this channel out"
    )


def _by_patches(
    picture: Picture, rng: np.random.Generator, return_std: bool, progress: bool
) -> tuple[list[Array], Array | None]:
    """Values of the gaps and, if wanted, standard deviations, by patches."""
    mode = patch_mode(picture)
    with progress_bar(progress, mode.stages + return_std, "inpaint") as advance:
        planes, variance = mode.fill(rng, advance)
        values = mode.units.back(planes, picture.gaps)
        if not return_std:
            return values, None
        factor = trial(mode, rng)
        advance("error bars")
    return values, mode.units.back_deviation(variance * factor[:, None, None])


def _as_matrix(
    picture: Picture, rng: np.random.Generator, return_std: bool, progress: bool
) -> tuple[list[Array], Array | None]:
    """Values of the gaps by the paper's model, channel by channel."""
    with progress_bar(progress, len(picture.pixels), "inpaint") as advance:
        filled = filled_as_matrix(picture.pixels, ~picture.gaps, advance)
    return [f[gaps] for f, gaps in zip(filled, picture.gaps, strict=True)], None
