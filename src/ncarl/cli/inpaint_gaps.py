"""Which pixels of a picture are missing: by a mask, by a colour, or hidden to try."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont
from scipy import ndimage

from ncarl import masks
from ncarl.cli.inpaint_files import PictureFile, read_picture_file
from ncarl.core.types import Array

#: What is written over a picture to try `inpaint` on.
WORDS = "the quick brown fox jumps over the lazy dog "
#: A colour this far off another, in each channel, is nearly the same.
NEARLY = 60
#: Height of its letters and of its lines, in pixels.
LETTERS, LINES = 18, 26
#: Squares that are hidden: so many, but no more than this part of the picture.
SQUARES, MOST_HIDDEN = 12, 0.3


@dataclass(frozen=True)
class GapOptions:
    """How gaps are told; exactly one of the first three is given.

    Attributes
    ----------
    mask : Path or None
        A picture, light where pixels are missing.
    color : str or None
        The colour of missing pixels.
    missing : str or None
        ``random:SHARE``, ``block:SIDE`` or ``text``.
    tolerance : int or None
        How far a channel may be off ``color``.
    seed : int
        Of what is hidden.
    """

    mask: Path | None = None
    color: str | None = None
    missing: str | None = None
    tolerance: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        given = [self.mask, self.color, self.missing]
        if sum(option is not None for option in given) != 1:
            raise ValueError(
                "say what is missing with one of --mask, --mask-color and --missing, "
                f"got {sum(option is not None for option in given)} of them"
            )
        if self.tolerance is not None and self.color is None:
            raise ValueError("--tolerance goes with --mask-color")
        if self.tolerance is not None and not 0 <= self.tolerance <= 255:
            raise ValueError(f"--tolerance must be 0 to 255, got {self.tolerance}")
        if self.color is not None:
            _colour(self.color)
        if self.missing is not None:
            _spec(self.missing)


@dataclass(frozen=True)
class Gaps:
    """What is missing.

    Attributes
    ----------
    mask : array of bool, shape (height, width)
        True where a pixel is missing.
    how : str
        How that was told.
    hidden : bool
        Whether the picture has the truth.
    note : str
        What a user should know; empty if nothing.
    """

    mask: Array
    how: str
    hidden: bool = False
    note: str = ""


def find_gaps(options: GapOptions, picture: PictureFile, max_pixels: int) -> Gaps:
    """What is missing in a picture, as the options tell it."""
    gaps = _found(options, picture, max_pixels)
    if picture.mode not in ("LA", "RGBA") or not gaps.mask.any():
        return gaps
    unseen = int((picture.pixels[..., -1][gaps.mask] == 0).sum())
    if unseen == 0:
        return gaps
    note = (
        f"{unseen} of the missing pixels are transparent and stay so: what fills "
        "them cannot be seen; save the picture without transparency first"
    )
    return replace(gaps, note="; ".join(filter(None, (gaps.note, note))))


def _found(options: GapOptions, picture: PictureFile, max_pixels: int) -> Gaps:
    """What the options tell, whatever the picture shows there."""
    height, width = picture.pixels.shape[:2]
    if options.mask is not None:
        return _from_file(options.mask, picture, max_pixels)
    if options.color is not None:
        return _of_colour(options.color, options.tolerance or 0, picture)
    kind, number = _spec(options.missing or "")
    if kind == "random":
        hidden = masks.random((height, width), number, rng=options.seed)
        return Gaps(hidden, f"hidden at random (seed {options.seed})", hidden=True)
    if kind == "block":
        side = int(number)
        hidden = squares((height, width), side, options.seed)
        return Gaps(hidden, f"hidden in squares of {side} x {side}", hidden=True)
    return Gaps(lettering((height, width)), "hidden below text", hidden=True)


def _from_file(path: Path, picture: PictureFile, max_pixels: int) -> Gaps:
    """Gaps where a mask is light."""
    shape = picture.pixels.shape[:2]
    read = read_picture_file(path, max_pixels)
    marks = read.pixels
    if marks.shape[:2] != shape:
        raise ValueError(
            f"--mask must have the size of the picture, {shape[1]} x {shape[0]}"
            f"{' once it is upright' if picture.turned else ''}, got "
            f"{marks.shape[1]} x {marks.shape[0]} ({path.name})"
        )
    if read.mode in ("LA", "RGBA"):
        marks = marks[..., :-1]
    light = marks if marks.ndim == 2 else marks.max(axis=2)
    light = np.nan_to_num(light.astype(np.float64), nan=np.inf)
    levels = np.unique(light)
    if len(levels) <= 2 and (levels[0] == 0.0 or len(levels) == 1):
        # Two levels need no threshold: also 0 and 1 are meant as dark and light.
        return Gaps(light > 0.0, f"light in {path.name}")
    full = {"I;16": 65535.0, "F": 1.0}.get(read.mode, 255.0)
    note = (
        f"{path.name} has {len(levels)} shades; those in the lighter half count as "
        "missing"
    )
    return Gaps(light >= full / 2, f"light in {path.name}", note=note)


def _of_colour(color: str, tolerance: int, picture: PictureFile) -> Gaps:
    """Gaps where a picture has a colour."""
    if picture.pixels.dtype != np.uint8:
        raise ValueError(
            "--mask-color needs a picture with 8 bits, got "
            f"{picture.pixels.dtype.name}; use --mask"
        )
    wanted = np.array(_colour(color), dtype=np.int64)
    pixels = picture.pixels.astype(np.int64)
    grey = picture.mode in ("L", "LA")
    if grey and len(set(wanted.tolist())) > 1:
        raise ValueError(f"--mask-color {color!r} is no grey, but the picture is grey")
    colours = pixels[..., None] if picture.mode == "L" else pixels
    if picture.mode in ("LA", "RGBA"):
        colours = colours[..., :-1]
    off = np.abs(colours - (wanted[:1] if grey else wanted)).max(axis=2)
    found = off <= tolerance
    if not found.any():
        raise ValueError(
            f"--mask-color {color!r}: no pixel has this colour; the nearest is off by "
            f"{int(off.min())} (JPEG changes colours), so --tolerance {int(off.min())} "
            "would find one"
        )
    return Gaps(found, f"of the colour {color}", note=_shades_left(off, tolerance))


def _shades_left(off: Array, tolerance: int) -> str:
    """What to say where pixels are nearly of the colour: a JPEG's edges of a scratch.

    Parameters
    ----------
    off : array of int, shape (height, width)
        How far pixels are off the colour.
    tolerance : int
        How far those that count as missing may be.
    """
    missing, near = off <= tolerance, off <= tolerance + NEARLY
    # Pictures have such colours of their own; next to what is missing they stand out.
    around = ndimage.binary_propagation(missing, np.ones((3, 3)), mask=near) & ~missing
    count = int(around.sum())
    if count * 20 <= int(missing.sum()):
        return ""
    return (
        f"{count} pixels beside them are nearly of that colour and count as known; "
        f"--tolerance {tolerance + NEARLY} takes them in"
    )


def _colour(color: str) -> tuple[int, int, int]:
    """Red, green and blue of a colour."""
    try:
        red, green, blue = ImageColor.getrgb(color)[:3]
    except ValueError as error:
        raise ValueError(
            f"--mask-color must be a colour such as '#ff00ff' or 'magenta', got "
            f"{color!r}"
        ) from error
    return red, green, blue


def _spec(text: str) -> tuple[str, float]:
    """The kind of gaps to try, and its number."""
    kind, _, number = text.partition(":")
    if kind == "text" and not number:
        return kind, 0.0
    try:
        value = float(number)
        if kind == "random" and 0.0 < value < 1.0:
            return kind, value
        if kind == "block" and value >= 1.0 and value.is_integer():
            return kind, value
    except ValueError:
        pass
    raise ValueError(
        "--missing must be random:SHARE with a share between 0 and 1, block:SIDE with "
        f"a side in pixels, or text, got {text!r}"
    )


def squares(shape: tuple[int, int], side: int, seed: int) -> Array:
    """A mask with squares at random places, which do not touch."""
    if side >= min(shape):
        raise ValueError(
            f"--missing block:{side} must be smaller than the picture, which is "
            f"{shape[1]} x {shape[0]}"
        )
    rng = np.random.default_rng(seed)
    hidden, room = np.zeros(shape, dtype=bool), MOST_HIDDEN * shape[0] * shape[1]
    for _ in range(50 * SQUARES):
        one = masks.block(shape, (side, side), rng=rng)
        top, left = np.argwhere(one)[0]
        around = hidden[max(0, top - 1) : top + side + 1, max(0, left - 1) :]
        if around[:, : side + 2].any():
            continue
        hidden |= one
        count = hidden.sum() // side**2
        if count == SQUARES or hidden.sum() + side**2 > room:
            break
    return hidden


def lettering(shape: tuple[int, int]) -> Array:
    """A mask of text in lines all over a picture."""
    height, width = shape
    image = Image.new("L", (width, height), 0)
    drawing, font = ImageDraw.Draw(image), ImageFont.load_default(LETTERS)
    often = WORDS * (2 + width // (4 * len(WORDS)))
    for k, top in enumerate(range(4, height, LINES)):
        drawing.text((4, top), often[3 * k % len(WORDS) :], fill=255, font=font)
    hidden: Array = np.asarray(image) >= 64
    return hidden
