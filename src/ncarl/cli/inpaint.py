"""``ncarl inpaint``: fill in the missing pixels of a picture in a file."""

from __future__ import annotations

import contextlib
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from PIL import (
    ExifTags,
    Image,
    ImageColor,
    ImageDraw,
    ImageFont,
    ImageOps,
    UnidentifiedImageError,
)
from scipy import ndimage

from ncarl import masks
from ncarl.cli import console, options as opt
from ncarl.cli.options import output_option
from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.html import Page
from ncarl.images import inpaint as inpaint_image
from ncarl.io.files import atomic_write
from ncarl.metrics import SSIM_WINDOW, psnr, ssim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

mask_option = partial(opt.option, "Missing pixels (one of these)")
method_option = partial(opt.option, "Method")
EXAMPLES = (
    "ncarl inpaint photo.png --mask scratches.png -o repaired.png",
    "ncarl inpaint photo.png --mask-color '#ff00ff' -o repaired.png",
    "ncarl inpaint photo.png --missing random:0.5 --before-after try.png",
)
#: Formats that are read, as Pillow calls them.
READABLE_FORMATS = ("PNG", "TIFF", "JPEG", "WEBP", "BMP", "PPM", "GIF")
FORMAT_BY_SUFFIX = {".png": "PNG", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP"}
FORMAT_BY_SUFFIX |= {".bmp": "BMP", ".jpg": "JPEG", ".jpeg": "JPEG"}
#: Modes of Pillow in which pictures are filled: what they are called, and the formats
#: that can hold them.
MODES = {
    "L": ("gray, 8 bits", tuple(FORMAT_BY_SUFFIX.values())),
    "RGB": ("color, 8 bits", tuple(FORMAT_BY_SUFFIX.values())),
    "LA": ("gray with transparency, 8 bits", ("PNG", "TIFF", "WEBP")),
    "RGBA": ("color with transparency, 8 bits", ("PNG", "TIFF", "WEBP")),
    "I;16": ("gray, 16 bits", ("PNG", "TIFF")),
    "F": ("gray, floats", ("TIFF",)),
}
#: What other modes are converted to.
MODE_CONVERSIONS = {"1": "L", "P": "RGB", "La": "LA", "RGBa": "RGBA", "PA": "RGBA"}
MODE_CONVERSIONS |= dict.fromkeys(("I;16B", "I;16L", "I;16N"), "I;16")
#: What modes are converted to if the file names a color that means transparent.
TRANSPARENCY_MODES = dict.fromkeys(("1", "L", "LA"), "LA")
TRANSPARENCY_MODES |= dict.fromkeys(("RGB", "RGBA", "P", "PA"), "RGBA")
#: Options with which formats are saved: observed pixels must not change.
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "TIFF": {"compression": "tiff_deflate"},
    "WEBP": {"lossless": True, "exact": True},
    "JPEG": {"quality": 95, "subsampling": 0},
}
#: Exceptions of Pillow and the libraries below it on damaged files.
DECODE_ERRORS = (
    *(OSError, SyntaxError, ValueError, TypeError, EOFError, LookupError),
    *(ArithmeticError, struct.error, zlib.error),
)
#: Text that --missing text writes over a picture.
OVERLAY_TEXT = "the quick brown fox jumps over the lazy dog "
#: Height of its letters and of its lines, in pixels.
FONT_SIZE, LINE_HEIGHT = 18, 26
#: Colors that differ by at most this, in each channel, are nearly the same.
NEAR_COLOR_TOLERANCE = 60
#: Squares that --missing block hides at most, and the share of the picture.
MAX_SQUARES, MAX_HIDDEN_FRACTION = 12, 0.3


def inpaint(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="PICTURE",
            show_default=False,
            help="PNG, TIFF, JPEG, WebP, BMP, PPM or GIF; gray or color.",
        ),
    ],
    mask: Annotated[
        Path | None,
        mask_option(
            "A picture of the same size, light where pixels are missing and dark "
            "where they are observed; gray levels are rounded to light or dark.",
            metavar="PATH",
        ),
    ] = None,
    mask_color: Annotated[
        str | None,
        mask_option(
            "Pixels of this color are missing: '#ff00ff', 'magenta'.", metavar="COLOR"
        ),
    ] = None,
    missing: Annotated[
        str | None,
        mask_option(
            "Hide pixels of a complete picture, and measure the error there.",
            metavar="random:SHARE|block:SIDE|text",
        ),
    ] = None,
    tolerance: Annotated[
        int,
        mask_option(
            "Largest difference from --mask-color in a channel.", min=0, max=255
        ),
    ] = 0,
    method: Annotated[
        Literal["patches", "matrix"],
        method_option(
            "patches models small patches of the picture; matrix is the method of "
            "the paper, and less accurate."
        ),
    ] = "patches",
    seed: Annotated[
        int,
        method_option("Random seed of the sampled patches and of --missing.", min=0),
    ] = 0,
    max_pixels: Annotated[
        int,
        method_option("Refuse larger pictures, before they are decompressed.", min=1),
    ] = 50_000_000,
    target: Annotated[
        Path | None,
        output_option(
            "The filled picture; PNG and TIFF keep observed pixels bit for bit. "
            "Not needed with --missing.",
            "-o",
            "--out",
            metavar="OUT",
            show_default=False,
        ),
    ] = None,
    before_after: Annotated[
        Path | None,
        output_option(
            "Draw the picture before and after, side by side.", metavar="PATH.png"
        ),
    ] = None,
    report: opt.ReportOption = None,
    overwrite: opt.OverwriteOption = False,
    quiet: opt.QuietOption = False,
) -> None:
    """Fill in the missing pixels of a picture: scratches, text, dead pixels, holes.

    The observed pixels stay as they are. The picture is rotated upright if its EXIF
    data say so; its color profile is kept, other metadata are not.
    """
    n_given = sum(option is not None for option in (mask, mask_color, missing))
    if n_given != 1:
        raise ValueError(
            f"give one of --mask, --mask-color and --missing, got {n_given} of them"
        )
    if tolerance and mask_color is None:
        raise ValueError("--tolerance goes with --mask-color")
    if target is None and missing is None:
        raise ValueError("name the file for the filled picture with -o")
    console.check_suffix("OUT", target, *FORMAT_BY_SUFFIX)
    console.check_suffix("--before-after", before_after, ".png")
    outputs = {"OUT": target, "--before-after": before_after}
    console.check_outputs(source, outputs, overwrite=overwrite, inputs={"--mask": mask})
    console.check_report_path(report, source)

    picture = read_picture(source, max_pixels)
    if target is not None:
        _check_mode_writable(target, picture.mode)
    if mask is not None:
        lost = _mask_from_file(mask, picture, max_pixels)
    elif mask_color is not None:
        lost = _mask_from_color(mask_color, tolerance, picture)
    elif missing is not None:
        lost = _hide_pixels(missing, picture.pixels.shape[:2], seed)
    if lost.mask.all():
        raise ValueError(
            f"all pixels of {str(source)!r} are missing ({lost.description}); is the "
            "mask inverted? Light means missing"
        )
    start = time.perf_counter()
    filled = inpaint_image(
        picture.pixels,
        lost.mask,
        method,
        random_state=seed,
        progress=console.is_interactive(quiet),
    )
    seconds = time.perf_counter() - start
    quality = None if missing is None else _measure_quality(picture.pixels, filled)

    height, width = lost.mask.shape
    count, share = int(lost.mask.sum()), lost.mask.mean()
    upright = ", rotated upright" if picture.exif_rotated else ""
    notes = list(lost.notes)
    if picture.has_alpha and (unseen := (picture.pixels[lost.mask, -1] == 0).sum()):
        notes.append(
            f"{unseen} of the missing pixels are transparent and stay so: what fills "
            "them cannot be seen; save the picture without transparency first"
        )
    fields = [
        ("picture", f"{width} x {height}, {MODES[picture.mode][0]}{upright}"),
        ("missing", f"{count:,} pixels ({share:.1%}), {lost.description}"),
        *(("note", note) for note in notes),
        ("filled", f"by {method} in {seconds:.1f} s" if count else "nothing to fill"),
    ]
    if quality:
        text = f"{', '.join(quality)} (whole picture against the truth)"
        fields.append(("quality", text))
    if target is not None:
        _write_picture(target, filled, picture.icc_profile)
        fields.append(("written", str(target)))
        if FORMAT_BY_SUFFIX[target.suffix.lower()] == "JPEG":
            note = "JPEG changes observed pixels a little; PNG does not"
            fields.append(("note", note))
    if before_after is not None or report is not None:
        from ncarl.plots import save_figure

        figure = _draw_before_after(picture.pixels, filled, lost.mask, method, quality)
    if before_after is not None:
        save_figure(figure, before_after)
        fields.append(("drawn", str(before_after)))
    if not quiet:
        console.print_fields(fields)
    if report is not None:
        page = Page(
            f"Filled: {source.name}",
            "Missing pixels were filled in from the picture itself; the observed ones "
            "are unchanged.",
        )
        page.figure(figure, "Before and after; missing pixels are shown in orange.")
        console.write_page(page, report, fields, quiet=quiet)


@dataclass(frozen=True)
class PictureFile:
    """A picture that was read."""

    pixels: Array  # (height, width[, channels]) of uint8, uint16 or float32
    mode: str  # of Pillow, one of MODES
    exif_rotated: bool = False  # whether it was rotated upright
    icc_profile: bytes | None = field(default=None, repr=False)

    @property
    def has_alpha(self) -> bool:
        """Whether the last channel is transparency."""
        return self.mode in ("LA", "RGBA")


@dataclass(frozen=True)
class MissingPixels:
    """The missing pixels of a picture."""

    mask: Array  # boolean of shape (height, width), True where a pixel is missing
    description: str  # how they were given
    notes: Sequence[str] = ()  # for the user


def _mask_from_file(path: Path, picture: PictureFile, max_pixels: int) -> MissingPixels:
    shape = picture.pixels.shape[:2]
    mask = read_picture(path, max_pixels)
    marks = mask.pixels[..., :-1] if mask.has_alpha else mask.pixels
    if marks.shape[:2] != shape:
        raise ValueError(
            f"--mask must have the size of the picture, {shape[1]} x {shape[0]}"
            f"{' once it is upright' if picture.exif_rotated else ''}, got "
            f"{marks.shape[1]} x {marks.shape[0]} ({path.name})"
        )
    light = marks if marks.ndim == 2 else marks.max(axis=2)
    light = np.nan_to_num(light.astype(np.float64), nan=np.inf)
    levels = np.unique(light)
    if len(levels) <= 2 and (levels[0] == 0.0 or len(levels) == 1):
        # Two levels need no threshold: 0 and 1, too, are dark and light.
        return MissingPixels(light > 0.0, f"light in {path.name}")
    white = {"I;16": 65535.0, "F": 1.0}.get(mask.mode, 255.0)
    note = (
        f"{path.name} has {len(levels)} shades; those in the lighter half count as "
        "missing"
    )
    return MissingPixels(light >= white / 2, f"light in {path.name}", [note])


def _mask_from_color(color: str, tolerance: int, picture: PictureFile) -> MissingPixels:
    try:
        wanted: tuple[int, ...] = ImageColor.getrgb(color)[:3]
    except ValueError as error:
        raise ValueError(
            f"--mask-color must be a color such as '#ff00ff' or 'magenta', got "
            f"{color!r}"
        ) from error
    if picture.pixels.dtype != np.uint8:
        raise ValueError(
            "--mask-color needs a picture with 8 bits, got "
            f"{picture.pixels.dtype.name}; use --mask"
        )
    if picture.mode in ("L", "LA"):
        if len(set(wanted)) > 1:
            raise ValueError(f"--mask-color {color!r} is not gray, but the picture is")
        wanted = wanted[:1]
    colors = np.atleast_3d(picture.pixels)[..., : len(wanted)].astype(np.int64)
    distance = np.abs(colors - wanted).max(axis=2)
    missing = distance <= tolerance
    if not missing.any():
        nearest = int(distance.min())
        raise ValueError(
            f"--mask-color {color!r}: no pixel has this color; the nearest is off by "
            f"{nearest} (JPEG changes colors), so --tolerance {nearest} "
            "would find one"
        )
    # Pixels nearly of the color beside missing ones: the edges of a scratch in a JPEG.
    # Elsewhere a picture may have such colors of its own.
    near = distance <= tolerance + NEAR_COLOR_TOLERANCE
    around = ndimage.binary_propagation(missing, np.ones((3, 3)), mask=near) & ~missing
    count = int(around.sum())
    note = (
        f"{count} pixels beside them are nearly of that color and count as observed; "
        f"--tolerance {tolerance + NEAR_COLOR_TOLERANCE} takes them in"
    )
    notes = [note] if count * 20 > int(missing.sum()) else []
    return MissingPixels(missing, f"of the color {color}", notes)


def _hide_pixels(spec: str, shape: tuple[int, int], seed: int) -> MissingPixels:
    kind, _, text = spec.partition(":")
    number = float("nan")  # which is in no range
    with contextlib.suppress(ValueError):
        number = float(text)
    if spec == "text":
        return MissingPixels(text_mask(shape), "hidden below text")
    if kind == "random" and 0.0 < number < 1.0:
        hidden = masks.random(shape, number, rng=seed)
        return MissingPixels(hidden, f"hidden at random (seed {seed})")
    if kind == "block" and number >= 1.0 and number.is_integer():
        hidden = random_squares_mask(shape, int(number), seed)
        return MissingPixels(hidden, f"hidden in squares of {number:g} x {number:g}")
    raise ValueError(
        "--missing must be random:SHARE with a share between 0 and 1, block:SIDE with "
        f"a side in pixels, or text, got {spec!r}"
    )


def random_squares_mask(shape: tuple[int, int], side: int, seed: int) -> Array:
    """A mask of squares at random places, which do not touch."""
    if side >= min(shape):
        raise ValueError(
            f"--missing block:{side} must be smaller than the picture, which is "
            f"{shape[1]} x {shape[0]}"
        )
    rng = np.random.default_rng(seed)
    hidden = np.zeros(shape, dtype=bool)
    room = MAX_HIDDEN_FRACTION * shape[0] * shape[1]
    for _ in range(50 * MAX_SQUARES):
        one = masks.block(shape, (side, side), rng=rng)
        top, left = np.argwhere(one)[0]
        around = hidden[max(0, top - 1) : top + side + 1, max(0, left - 1) :]
        if around[:, : side + 2].any():
            continue
        hidden |= one
        count = hidden.sum() // side**2
        if count == MAX_SQUARES or hidden.sum() + side**2 > room:
            break
    return hidden


def text_mask(shape: tuple[int, int]) -> Array:
    """A mask of text in lines all over a picture."""
    height, width = shape
    image = Image.new("L", (width, height), 0)
    drawing, font = ImageDraw.Draw(image), ImageFont.load_default(FONT_SIZE)
    text = OVERLAY_TEXT * (2 + width // (4 * len(OVERLAY_TEXT)))
    for k, top in enumerate(range(4, height, LINE_HEIGHT)):
        drawing.text((4, top), text[3 * k % len(OVERLAY_TEXT) :], fill=255, font=font)
    return np.asarray(image) >= 64


def read_picture(path: Path, max_pixels: int) -> PictureFile:
    """A picture, upright, in a mode that can be filled and written unchanged."""
    with path.open("rb") as stream, _open_image(path, stream) as image:
        count = image.width * image.height
        if count > max_pixels:
            raise ValueError(
                f"{str(path)!r} has {image.width} x {image.height} = {count:,} pixels, "
                f"more than {max_pixels:,}; give --max-pixels {count} if it is to be "
                "trusted"
            )
        frames = getattr(image, "n_frames", 1)
        if frames > 1:
            raise ValueError(
                f"{str(path)!r} has {frames} frames; save one of them as a picture of "
                "its own"
            )
        mode = _working_mode(path, image)
        with _convert_decode_errors(path):
            image.load()
            pixels = np.array(ImageOps.exif_transpose(image).convert(mode))
        rotated = image.getexif().get(ExifTags.Base.Orientation, 1) not in (None, 1)
        return PictureFile(pixels, mode, rotated, image.info.get("icc_profile"))


def _open_image(path: Path, stream: IO[bytes]) -> Image.Image:
    """A picture of which only the header was read."""
    pillow_limit = Image.MAX_IMAGE_PIXELS
    # The limit is ours, which the user can set; Pillow's would warn besides.
    Image.MAX_IMAGE_PIXELS = None
    try:
        with _convert_decode_errors(path):
            return Image.open(stream, formats=READABLE_FORMATS)
    finally:
        Image.MAX_IMAGE_PIXELS = pillow_limit


@contextlib.contextmanager
def _convert_decode_errors(path: Path) -> Iterator[None]:
    """Raise `BrokenFileError` for what damaged files raise."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise BrokenFileError(
            f"{str(path)!r} cannot be read as a picture; PNG, TIFF, JPEG, WebP, "
            "BMP, PPM and GIF can"
        ) from error
    except DECODE_ERRORS as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged and cannot be read: {error}"
        ) from error


def _working_mode(path: Path, image: Image.Image) -> str:
    if _has_deep_color(image):
        raise ValueError(
            f"{str(path)!r} has 16 bits for each of several channels, of which Pillow "
            "keeps 8; read it with another library and use ncarl.images.inpaint"
        )
    clear = "transparency" in image.info
    if clear and image.mode not in TRANSPARENCY_MODES:
        raise ValueError(
            f"{str(path)!r} has the mode {image.mode} with a color that stands for "
            "transparency, which would be lost; save it as RGBA"
        )
    if clear:
        return TRANSPARENCY_MODES[image.mode]
    if image.mode == "I" and image.format in ("PNG", "PPM"):
        return "I;16"
    mode = MODE_CONVERSIONS.get(image.mode, image.mode)
    if mode not in MODES:
        raise ValueError(
            f"{str(path)!r} has the mode {image.mode}, which cannot be written as it "
            "was; save it as gray or RGB"
        )
    return mode


def _has_deep_color(image: Image.Image) -> bool:
    """Whether each of several channels has more than 8 bits in the file."""
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(ExifTags.Base.BitsPerSample, (1,))
        return len(image.getbands()) > 1 and max(bits) > 8
    if image.mode not in ("RGB", "RGBA", "LA"):
        return False
    # Pillow gives the layout of the file in the parts it will decode: ";16B" for a
    # PNG, the largest value for a PPM.
    parts = [part[3] for part in getattr(image, "tile", ())]
    if image.format == "PPM":
        return any(isinstance(p, tuple) and p[1] > 255 for p in parts)
    return image.format == "PNG" and any(";16B" in str(p) for p in parts)


def _check_mode_writable(path: Path, mode: str) -> None:
    formats = MODES[mode][1]
    if FORMAT_BY_SUFFIX[path.suffix.lower()] not in formats:
        what = {"LA": "transparency", "RGBA": "transparency", "I;16": "16 bits"}
        suffixes = [end for end, name in FORMAT_BY_SUFFIX.items() if name in formats]
        raise ValueError(
            f"OUT must be able to hold {what.get(mode, 'floats')}, got "
            f"{str(path)!r}; name a file that ends in {' or '.join(suffixes)}"
        )


def _write_picture(path: Path, pixels: Array, icc_profile: bytes | None) -> None:
    name = FORMAT_BY_SUFFIX[path.suffix.lower()]
    options = dict(SAVE_OPTIONS.get(name, {}))
    if icc_profile is not None and name != "BMP":
        options["icc_profile"] = icc_profile
    with atomic_write(path) as temporary:
        Image.fromarray(pixels).save(temporary, format=name, **options)


def _to_unit_range(truth: Array, filled: Array) -> tuple[Array, Array]:
    """Two pictures between 0 and 1, gray or with three channels, not transparent."""
    if truth.dtype.kind == "f":
        white = float(max(np.nanmax(np.abs(truth)), 1e-300))
    else:
        white = float(np.iinfo(truth.dtype).max)
    colors = 0 if truth.ndim == 3 and truth.shape[2] == 2 else slice(3)
    channels = (..., colors) if truth.ndim == 3 else ...
    return truth[channels] / white, filled[channels] / white


def _measure_quality(truth: Array, filled: Array) -> list[str]:
    a, b = _to_unit_range(truth, filled)
    if not np.isfinite(a).all():
        return []
    similar = [f"SSIM {ssim(a, b):.4f}"] if min(a.shape[:2]) >= SSIM_WINDOW else []
    return [f"PSNR {psnr(a, b):.2f} dB", *similar]


def _draw_before_after(
    truth: Array, filled: Array, mask: Array, method: str, quality: Sequence[str] | None
) -> Figure:
    """The picture before and after, and the truth unless ``quality`` is None."""
    from ncarl.plots import ImagePanel, before_after

    whole, after = _to_unit_range(truth, filled)
    before = whole.copy()
    before[mask] = np.nan
    panels = [
        ImagePanel(before, f"before: {mask.mean():.1%} missing"),
        ImagePanel(after, f"after: filled by {method}", quality[0] if quality else ""),
    ]
    if quality is not None:
        panels.append(ImagePanel(whole, "truth"))
    return before_after(panels)
