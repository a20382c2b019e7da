"""``ncarl inpaint``: fill in the missing pixels of a picture in a file."""

from __future__ import annotations

import contextlib
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from PIL import (
    Image,
    ImageColor,
    ImageDraw,
    ImageFont,
    ImageOps,
    UnidentifiedImageError,
)
from scipy import ndimage

from ncarl import masks
from ncarl.cli.console import (
    check_outputs,
    check_report_path,
    is_interactive,
    print_fields,
    write_page,
)
from ncarl.cli.options import ReportOption
from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.html import Page
from ncarl.images import inpaint as inpaint_image
from ncarl.io.files import atomic_write
from ncarl.metrics import SSIM_WINDOW, psnr, ssim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MASK_PANEL, METHOD_PANEL, OUTPUT_PANEL = (
    "What is missing (one of these)",
    "How it is filled",
    "Output",
)
EXAMPLES = (
    "ncarl inpaint photo.png --mask scratches.png -o repaired.png",
    "ncarl inpaint photo.png --mask-color '#ff00ff' -o repaired.png",
    "ncarl inpaint photo.png --missing random:0.5 --before-after try.png",
)
#: Pixels that a picture may have by default.
DEFAULT_MAX_PIXELS = 50_000_000
#: Formats that are read, as Pillow calls them.
READABLE_FORMATS = ("PNG", "TIFF", "JPEG", "WEBP", "BMP", "PPM", "GIF")
#: Formats of outputs by suffix.
FORMAT_BY_SUFFIX = {
    ".png": "PNG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
    ".bmp": "BMP",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
}
#: Modes of Pillow in which pictures are filled, and the formats that can hold them.
WRITABLE_FORMATS = {
    "L": (*FORMAT_BY_SUFFIX.values(),),
    "RGB": (*FORMAT_BY_SUFFIX.values(),),
    "LA": ("PNG", "TIFF", "WEBP"),
    "RGBA": ("PNG", "TIFF", "WEBP"),
    "I;16": ("PNG", "TIFF"),
    "F": ("TIFF",),
}
#: What other modes are converted to.
MODE_CONVERSIONS = {"1": "L", "La": "LA", "RGBa": "RGBA", "PA": "RGBA", "I;16B": "I;16",
          "I;16L": "I;16", "I;16N": "I;16"}  # fmt: skip
#: What modes are converted to if the file names a color that means transparent.
TRANSPARENCY_MODES = {
    "1": "LA",
    "L": "LA",
    "RGB": "RGBA",
    "P": "RGBA",
    "LA": "LA",
    "RGBA": "RGBA",
    "PA": "RGBA",
}
#: Descriptions of the modes.
MODE_DESCRIPTIONS = {
    "L": "gray, 8 bits",
    "LA": "gray with transparency, 8 bits",
    "RGB": "color, 8 bits",
    "RGBA": "color with transparency, 8 bits",
    "I;16": "gray, 16 bits",
    "F": "gray, floats",
}
#: A tag of TIFF.
TIFF_BITS_PER_SAMPLE = 258
#: How each format is saved; observed pixels must not change.
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "TIFF": {"compression": "tiff_deflate"},
    "WEBP": {"lossless": True, "exact": True},
    "BMP": {},
    "JPEG": {"quality": 95, "subsampling": 0},
}
#: Exceptions of Pillow and the libraries below it on damaged files.
DECODE_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    ZeroDivisionError,
    OverflowError,
    struct.error,
    zlib.error,
)
#: Text that --missing text writes over a picture.
OVERLAY_TEXT = "the quick brown fox jumps over the lazy dog "
#: Height of its letters and of its lines, in pixels.
FONT_SIZE, LINE_HEIGHT = 18, 26
#: Colors that differ by at most this, in each channel, are nearly the same.
NEAR_COLOR_TOLERANCE = 60
#: Squares that --missing block hides at most, and the share of the picture.
MAX_SQUARES, MAX_HIDDEN_FRACTION = 12, 0.3


class InpaintMethodChoice(StrEnum):
    """Methods of `ncarl.images.inpaint`."""

    PATCHES = "patches"
    MATRIX = "matrix"


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
        typer.Option(
            metavar="PATH",
            rich_help_panel=MASK_PANEL,
            help="A picture of the same size, light where pixels are missing "
            "and dark where they are observed. Shades count by which half they "
            "are in.",
        ),
    ] = None,
    mask_color: Annotated[
        str | None,
        typer.Option(
            metavar="COLOR",
            rich_help_panel=MASK_PANEL,
            help="Pixels of this color are missing: '#ff00ff', 'magenta'.",
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            metavar="random:SHARE|block:SIDE|text",
            rich_help_panel=MASK_PANEL,
            help="To try it out: hides pixels itself, and measures how near the "
            "filled ones come to them.",
        ),
    ] = None,
    tolerance: Annotated[
        int | None,
        typer.Option(
            metavar="0-255",
            rich_help_panel=MASK_PANEL,
            show_default="0",
            help="How far a channel may be off --mask-color.",
        ),
    ] = None,
    method: Annotated[
        InpaintMethodChoice,
        typer.Option(
            rich_help_panel=METHOD_PANEL,
            help="patches learns how small patches of the picture look; "
            "matrix is the method of the paper, and less accurate.",
        ),
    ] = InpaintMethodChoice.PATCHES,
    seed: Annotated[
        int,
        typer.Option(
            rich_help_panel=METHOD_PANEL,
            help="Seed of which patches to learn from, and of --missing.",
        ),
    ] = 0,
    max_pixels: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            rich_help_panel=METHOD_PANEL,
            help="Refuse larger pictures, before they are unpacked.",
        ),
    ] = DEFAULT_MAX_PIXELS,
    target: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="OUT",
            show_default=False,
            rich_help_panel=OUTPUT_PANEL,
            help="The filled picture; PNG and TIFF keep observed pixels bit for "
            "bit. Not needed with --missing.",
        ),
    ] = None,
    before_after: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH.png",
            rich_help_panel=OUTPUT_PANEL,
            help="Draw the picture before and after, side by side.",
        ),
    ] = None,
    report: ReportOption = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            rich_help_panel=OUTPUT_PANEL,
            help="Replace files that exist.",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            rich_help_panel=OUTPUT_PANEL,
            help="Print nothing but errors.",
        ),
    ] = False,
) -> None:
    """Fill in the missing pixels of a picture: scratches, text, dead pixels, holes.

    The observed pixels stay as they are. The picture is rotated upright if its EXIF
    data say so; its color profile is kept, other metadata are not.
    """
    job = InpaintJob(
        source,
        MaskOptions(mask, mask_color, missing, tolerance, seed),
        str(method),
        seed,
        max_pixels,
        target,
        before_after,
        report,
        overwrite,
        quiet,
    )
    done = run_inpaint(job)
    if not quiet:
        print_inpaint_summary(done)
    if report is not None:
        write_inpaint_page(done, report)


@dataclass(frozen=True)
class InpaintJob:
    """One run of ``ncarl inpaint``; the attributes are its options."""

    source: Path
    mask_options: MaskOptions
    method: str
    seed: int
    max_pixels: int
    target: Path | None
    before_after: Path | None
    report: Path | None
    overwrite: bool
    quiet: bool


@dataclass(frozen=True)
class InpaintResult:
    """Result of a run."""

    job: InpaintJob
    picture: PictureFile  # as read
    missing_pixels: MissingPixels
    filled: Array  # the pixels without missing ones
    seconds: float  # of the filling
    psnr: float | None = None  # of the whole picture, if the truth is known
    ssim: float | None = None


def run_inpaint(job: InpaintJob) -> InpaintResult:
    """Fill a picture and write the outputs."""
    check_inpaint_job(job)
    picture = read_picture_file(job.source, job.max_pixels)
    if job.target is not None:
        check_mode_writable(job.target, picture.mode)
    missing = find_missing_pixels(job.mask_options, picture, job.max_pixels)
    if missing.mask.all():
        raise ValueError(
            f"all pixels of {str(job.source)!r} are missing ({missing.description}); "
            "is the mask inverted? Light means missing"
        )
    start = time.perf_counter()
    filled = inpaint_image(
        picture.pixels,
        missing.mask,
        job.method,
        random_state=job.seed,
        progress=is_interactive() and not job.quiet,
    )
    seconds = time.perf_counter() - start
    quality = _quality_metrics(picture.pixels, filled, missing)
    done = InpaintResult(job, picture, missing, filled, seconds, *quality)
    if job.target is not None:
        write_picture(job.target, filled, picture)
    if job.before_after is not None:
        from ncarl.plots import save_figure

        save_figure(draw_before_after(done), job.before_after)
    return done


def check_inpaint_job(job: InpaintJob) -> None:
    """Raise before the work if an option is wrong, or a file cannot be written."""
    if job.target is None and job.mask_options.missing is None:
        raise ValueError("name the file for the filled picture with -o")
    if job.target is not None:
        check_image_suffix(job.target)
    drawing = job.before_after
    if drawing is not None and drawing.suffix.lower() != ".png":
        raise ValueError(f"--before-after must end in .png, got {str(drawing)!r}")
    if job.seed < 0:
        raise ValueError(f"--seed must be at least 0, got {job.seed}")
    named = {"OUT": job.target, "--before-after": drawing}
    targets = {flag: path for flag, path in named.items() if path is not None}
    check_outputs(job.source, targets, overwrite=job.overwrite)
    mask = job.mask_options.mask
    for flag, path in targets.items():
        if mask is not None and path.exists() and mask.exists() and path.samefile(mask):
            raise ValueError(f"{flag} {str(path)!r} is the mask; name another file")
    check_report_path(job.report, job.source)


def _quality_metrics(
    truth: Array, filled: Array, missing_pixels: MissingPixels
) -> tuple[float | None, float | None]:
    """PSNR and SSIM of the whole picture, without its transparency."""
    if not missing_pixels.has_truth:
        return None, None
    peak = peak_value(truth)
    colors = (
        truth.shape[2] - 1 if truth.ndim == 3 and truth.shape[2] in (2, 4) else None
    )
    if truth.ndim == 3:
        truth, filled = truth[..., :colors], filled[..., :colors]
    a, b = truth / peak, filled / peak
    if not np.isfinite(a).all():
        return None, None
    return psnr(a, b), ssim(a, b) if min(a.shape[:2]) >= SSIM_WINDOW else None


def peak_value(pixels: Array) -> float:
    """The value of white."""
    if pixels.dtype.kind == "f":
        return float(max(np.nanmax(np.abs(pixels)), 1e-300))
    return float(np.iinfo(pixels.dtype).max)


@dataclass(frozen=True)
class MaskOptions:
    """Options that say which pixels are missing; one of the first three is given."""

    mask: Path | None = None  # a picture, light where pixels are missing
    color: str | None = None  # of missing pixels
    missing: str | None = None  # random:SHARE, block:SIDE or text
    tolerance: int | None = None  # how far a channel may be off ``color``
    seed: int = 0  # of what ``missing`` hides

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
            _parse_color(self.color)
        if self.missing is not None:
            _parse_missing_spec(self.missing)


@dataclass(frozen=True)
class MissingPixels:
    """The missing pixels of a picture."""

    mask: Array  # boolean of shape (height, width), True where a pixel is missing
    description: str  # how they were given
    has_truth: bool = False  # whether the picture shows the truth there
    note: str = ""  # for the user; may be empty


def find_missing_pixels(
    options: MaskOptions, picture: PictureFile, max_pixels: int
) -> MissingPixels:
    """The missing pixels of a picture, as the options describe them."""
    missing = _build_mask(options, picture, max_pixels)
    if picture.mode not in ("LA", "RGBA") or not missing.mask.any():
        return missing
    unseen = int((picture.pixels[..., -1][missing.mask] == 0).sum())
    if unseen == 0:
        return missing
    note = (
        f"{unseen} of the missing pixels are transparent and stay so: what fills "
        "them cannot be seen; save the picture without transparency first"
    )
    return replace(missing, note="; ".join(filter(None, (missing.note, note))))


def _build_mask(
    options: MaskOptions, picture: PictureFile, max_pixels: int
) -> MissingPixels:
    """The same, whether or not these pixels are transparent."""
    height, width = picture.pixels.shape[:2]
    if options.mask is not None:
        return _mask_from_file(options.mask, picture, max_pixels)
    if options.color is not None:
        return _mask_from_color(options.color, options.tolerance or 0, picture)
    kind, number = _parse_missing_spec(options.missing or "")
    if kind == "random":
        hidden = masks.random((height, width), number, rng=options.seed)
        return MissingPixels(
            hidden, f"hidden at random (seed {options.seed})", has_truth=True
        )
    if kind == "block":
        side = int(number)
        hidden = random_squares_mask((height, width), side, options.seed)
        return MissingPixels(
            hidden, f"hidden in squares of {side} x {side}", has_truth=True
        )
    return MissingPixels(
        text_mask((height, width)), "hidden below text", has_truth=True
    )


def _mask_from_file(path: Path, picture: PictureFile, max_pixels: int) -> MissingPixels:
    """Missing where the mask in a file is light."""
    shape = picture.pixels.shape[:2]
    mask = read_picture_file(path, max_pixels)
    marks = mask.pixels
    if marks.shape[:2] != shape:
        raise ValueError(
            f"--mask must have the size of the picture, {shape[1]} x {shape[0]}"
            f"{' once it is upright' if picture.exif_rotated else ''}, got "
            f"{marks.shape[1]} x {marks.shape[0]} ({path.name})"
        )
    if mask.mode in ("LA", "RGBA"):
        marks = marks[..., :-1]
    light = marks if marks.ndim == 2 else marks.max(axis=2)
    light = np.nan_to_num(light.astype(np.float64), nan=np.inf)
    levels = np.unique(light)
    if len(levels) <= 2 and (levels[0] == 0.0 or len(levels) == 1):
        # Two levels need no threshold: 0 and 1, too, are dark and light.
        return MissingPixels(light > 0.0, f"light in {path.name}")
    full = {"I;16": 65535.0, "F": 1.0}.get(mask.mode, 255.0)
    note = (
        f"{path.name} has {len(levels)} shades; those in the lighter half count as "
        "missing"
    )
    return MissingPixels(light >= full / 2, f"light in {path.name}", note=note)


def _mask_from_color(color: str, tolerance: int, picture: PictureFile) -> MissingPixels:
    """Missing where the picture has a color."""
    if picture.pixels.dtype != np.uint8:
        raise ValueError(
            "--mask-color needs a picture with 8 bits, got "
            f"{picture.pixels.dtype.name}; use --mask"
        )
    wanted = np.array(_parse_color(color), dtype=np.int64)
    pixels = picture.pixels.astype(np.int64)
    gray = picture.mode in ("L", "LA")
    if gray and len(set(wanted.tolist())) > 1:
        raise ValueError(f"--mask-color {color!r} is no gray, but the picture is gray")
    colors = pixels[..., None] if picture.mode == "L" else pixels
    if picture.mode in ("LA", "RGBA"):
        colors = colors[..., :-1]
    distance = np.abs(colors - (wanted[:1] if gray else wanted)).max(axis=2)
    missing = distance <= tolerance
    if not missing.any():
        nearest = int(distance.min())
        raise ValueError(
            f"--mask-color {color!r}: no pixel has this color; the nearest is off by "
            f"{nearest} (JPEG changes colors), so --tolerance {nearest} "
            "would find one"
        )
    note = _near_color_note(distance, tolerance)
    return MissingPixels(missing, f"of the color {color}", note=note)


def _near_color_note(distance: Array, tolerance: int) -> str:
    """A note on pixels nearly of the color: the edges of a scratch in a JPEG.

    Parameters
    ----------
    distance : array of int, shape (height, width)
        Distance of the pixels from the color.
    tolerance : int
        Distance up to which they count as missing.
    """
    missing, near = distance <= tolerance, distance <= tolerance + NEAR_COLOR_TOLERANCE
    # Elsewhere a picture may have such colors of its own.
    around = ndimage.binary_propagation(missing, np.ones((3, 3)), mask=near) & ~missing
    count = int(around.sum())
    if count * 20 <= int(missing.sum()):
        return ""
    return (
        f"{count} pixels beside them are nearly of that color and count as observed; "
        f"--tolerance {tolerance + NEAR_COLOR_TOLERANCE} takes them in"
    )


def _parse_color(color: str) -> tuple[int, int, int]:
    """Red, green and blue of a color."""
    try:
        red, green, blue = ImageColor.getrgb(color)[:3]
    except ValueError as error:
        raise ValueError(
            f"--mask-color must be a color such as '#ff00ff' or 'magenta', got "
            f"{color!r}"
        ) from error
    return red, green, blue


def _parse_missing_spec(text: str) -> tuple[str, float]:
    """The kind of mask that ``--missing`` names, and its number."""
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
    hidden: Array = np.asarray(image) >= 64
    return hidden


@dataclass(frozen=True)
class PictureFile:
    """A picture that was read."""

    pixels: (
        Array  # (height, width) or (height, width, channels); uint8, uint16, float32
    )
    mode: str  # of Pillow: L, LA, RGB, RGBA, I;16 or F
    exif_rotated: bool = False  # whether it was rotated upright
    icc_profile: bytes | None = field(default=None, repr=False)


def read_picture_file(path: Path, max_pixels: int) -> PictureFile:
    """A picture, upright, in a mode that can be filled and written.

    Raises
    ------
    BrokenFileError
        If it is damaged or no picture.
    ValueError
        If it is too large, animated, or of a mode that cannot be written unchanged.
    """
    with open_image(path, max_pixels) as image:
        frames = getattr(image, "n_frames", 1)
        if frames > 1:
            raise ValueError(
                f"{str(path)!r} has {frames} frames; save one of them as a picture of "
                "its own"
            )
        mode = _working_mode(path, image)
        with _convert_decode_errors(path):
            image.load()
            upright = ImageOps.exif_transpose(image)
            if upright.mode != mode:
                upright = upright.convert(mode)
            pixels = np.array(upright)
        rotated = image.getexif().get(0x0112, 1) not in (None, 1)
        return PictureFile(pixels, mode, rotated, image.info.get("icc_profile"))


@contextlib.contextmanager
def open_image(path: Path, max_pixels: int) -> Iterator[Image.Image]:
    """A picture of which only the header was read, and the size checked."""
    if max_pixels < 1:
        raise ValueError(f"--max-pixels must be at least 1, got {max_pixels}")
    with path.open("rb") as stream:
        pillow_limit = Image.MAX_IMAGE_PIXELS
        # The limit is ours, which the user can set; Pillow's would warn besides.
        Image.MAX_IMAGE_PIXELS = None
        try:
            with _convert_decode_errors(path):
                image = Image.open(stream, formats=READABLE_FORMATS)
        finally:
            Image.MAX_IMAGE_PIXELS = pillow_limit
        count = image.width * image.height
        if count > max_pixels:
            raise ValueError(
                f"{str(path)!r} has {image.width} x {image.height} = {count:,} pixels, "
                f"more than {max_pixels:,}; give --max-pixels {count} if it is to be "
                "trusted"
            )
        with image:
            yield image


@contextlib.contextmanager
def _convert_decode_errors(path: Path) -> Iterator[None]:
    """Raise `BrokenFileError` for what damaged files raise."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise BrokenFileError(
            f"{str(path)!r} is no picture that can be read; PNG, TIFF, JPEG, WebP, "
            "BMP, PPM and GIF can"
        ) from error
    except DECODE_ERRORS as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged and cannot be read: {error}"
        ) from error


def _working_mode(path: Path, image: Image.Image) -> str:
    """The mode in which to fill a picture, or an error if there is none."""
    if _has_deep_color(image):
        raise ValueError(
            f"{str(path)!r} has 16 bits for each of several channels, of which Pillow "
            "keeps 8; read it with another library and use ncarl.images.inpaint"
        )
    clear = "transparency" in image.info
    if clear and image.mode not in TRANSPARENCY_MODES:
        raise ValueError(
            f"{str(path)!r} is of the kind {image.mode} with a color that stands for "
            "transparency, which would be lost; save it as RGBA"
        )
    if clear:
        return TRANSPARENCY_MODES[image.mode]
    if image.mode == "P":
        return "RGB"
    if image.mode == "I" and image.format in ("PNG", "PPM"):
        return "I;16"
    mode = MODE_CONVERSIONS.get(image.mode, image.mode)
    if mode not in WRITABLE_FORMATS:
        raise ValueError(
            f"{str(path)!r} is of the kind {image.mode}, which cannot be written as it "
            "was; save it as gray or RGB"
        )
    return mode


def _has_deep_color(image: Image.Image) -> bool:
    """Whether each of several channels has more than 8 bits in the file."""
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(TIFF_BITS_PER_SAMPLE, (1,))
        return len(image.getbands()) > 1 and max(bits) > 8
    if image.mode not in ("RGB", "RGBA", "LA"):
        return False
    # Pillow gives the layout of the file in the parts it will decode: ";16B" for a
    # PNG, the largest value for a PPM.
    parts = [part[3] for part in getattr(image, "tile", ())]
    if image.format == "PPM":
        return any(isinstance(p, tuple) and p[1] > 255 for p in parts)
    return image.format == "PNG" and any(";16B" in str(p) for p in parts)


def check_image_suffix(path: Path) -> str:
    """The format of an output by its suffix."""
    ending = path.suffix.lower()
    if ending not in FORMAT_BY_SUFFIX:
        raise ValueError(
            f"OUT must end in one of {', '.join(FORMAT_BY_SUFFIX)}, got {str(path)!r}"
        )
    return FORMAT_BY_SUFFIX[ending]


def check_mode_writable(path: Path, mode: str) -> None:
    """Raise if a picture of a mode cannot be written to a file of this name."""
    formats = WRITABLE_FORMATS[mode]
    if check_image_suffix(path) not in formats:
        what = {"LA": "transparency", "RGBA": "transparency", "I;16": "16 bits"}
        suffixes = [end for end, name in FORMAT_BY_SUFFIX.items() if name in formats]
        raise ValueError(
            f"OUT must be able to hold {what.get(mode, 'floats')}, got "
            f"{str(path)!r}; name a file that ends in {' or '.join(suffixes)}"
        )


def write_picture(path: Path, pixels: Array, template: PictureFile) -> None:
    """Write a picture atomically."""
    name = check_image_suffix(path)
    image = Image.fromarray(pixels)
    options = dict(SAVE_OPTIONS[name])
    if template.icc_profile is not None and name != "BMP":
        options["icc_profile"] = template.icc_profile
    with atomic_write(path) as temporary:
        image.save(temporary, format=name, **options)


def print_inpaint_summary(result: InpaintResult) -> None:
    """Print the summary of a run."""
    print_fields(inpaint_summary_lines(result))


def inpaint_summary_lines(result: InpaintResult) -> Iterator[tuple[str, str]]:
    """The summary of a run as names and texts."""
    picture, missing = result.picture, result.missing_pixels
    height, width = missing.mask.shape
    upright = ", rotated upright" if picture.exif_rotated else ""
    yield "picture", f"{width} x {height}, {MODE_DESCRIPTIONS[picture.mode]}{upright}"
    count = int(missing.mask.sum())
    share = count / missing.mask.size
    yield "missing", f"{count:,} pixels ({share:.1%}), {missing.description}"
    if missing.note:
        yield "note", missing.note
    if count:
        yield "filled", f"by {result.job.method} in {result.seconds:.1f} s"
    else:
        yield "filled", "nothing was missing; the picture is as it was"
    if result.psnr is not None:
        yield "quality", describe_quality(result)
    yield from _output_lines(result)


def describe_quality(result: InpaintResult) -> str:
    """PSNR and SSIM as text."""
    similar = "" if result.ssim is None else f", SSIM {result.ssim:.4f}"
    return f"PSNR {result.psnr:.2f} dB{similar} (whole picture against the truth)"


def _output_lines(result: InpaintResult) -> Iterator[tuple[str, str]]:
    """The files that were written."""
    job = result.job
    if job.target is not None:
        yield "written", str(job.target)
        if check_image_suffix(job.target) == "JPEG":
            yield "note", "JPEG changes observed pixels a little; PNG does not"
    if job.before_after is not None:
        yield "drawn", str(job.before_after)


def draw_before_after(result: InpaintResult) -> Figure:
    """The picture before and after, and the truth if it is known."""
    from ncarl.plots import ImagePanel, before_after

    mask = result.missing_pixels.mask
    quality = "" if result.psnr is None else f"PSNR {result.psnr:.2f} dB"
    before = to_displayable(result.picture.pixels)
    holes = mask if before.ndim == 2 else mask[:, :, None]
    panels = [
        ImagePanel(
            np.where(holes, np.nan, before), f"before: {mask.mean():.1%} missing"
        ),
        ImagePanel(
            to_displayable(result.filled),
            f"after: filled by {result.job.method}",
            quality,
        ),
    ]
    if result.missing_pixels.has_truth:
        panels.append(ImagePanel(before, "truth"))
    return before_after(panels)


def to_displayable(pixels: Array) -> Array:
    """A picture between 0 and 1, gray or with three channels."""
    scaled = pixels / peak_value(pixels)
    if scaled.ndim == 3 and scaled.shape[2] == 2:
        return scaled[:, :, 0]
    return scaled if scaled.ndim == 2 else scaled[:, :, :3]


def write_inpaint_page(result: InpaintResult, path: Path) -> None:
    """Write the page of a run, and print its path."""
    page = Page(
        f"Filled: {result.job.source.name}",
        "Missing pixels were filled from the picture itself; observed ones are as "
        "they were.",
    )
    page.heading("Before and after")
    page.figure(draw_before_after(result), "Missing pixels are shown in orange.")
    fields = inpaint_summary_lines(result)
    write_page(page, path, fields, quiet=result.job.quiet)
