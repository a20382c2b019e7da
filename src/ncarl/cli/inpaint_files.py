"""Pictures in files: read with care, written whole."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.storage import replacing

#: What Pillow may take a file for.
FORMATS = ("PNG", "TIFF", "JPEG", "WEBP", "BMP", "PPM", "GIF")
#: Formats of outputs by the end of the name.
ENDINGS = {
    ".png": "PNG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
    ".bmp": "BMP",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
}
#: Modes of Pillow that hold pixels as they are worked on, and in which formats those
#: can be written.
WRITABLE = {
    "L": (*ENDINGS.values(),),
    "RGB": (*ENDINGS.values(),),
    "LA": ("PNG", "TIFF", "WEBP"),
    "RGBA": ("PNG", "TIFF", "WEBP"),
    "I;16": ("PNG", "TIFF"),
    "F": ("TIFF",),
}
#: What other modes are turned into.
TURNED = {"1": "L", "La": "LA", "RGBa": "RGBA", "PA": "RGBA", "I;16B": "I;16",
          "I;16L": "I;16", "I;16N": "I;16"}  # fmt: skip
#: What modes are turned into whose file names a colour that stands for transparency.
CLEAR = {"1": "LA", "L": "LA", "RGB": "RGBA", "P": "RGBA", "LA": "LA", "RGBA": "RGBA",
         "PA": "RGBA"}  # fmt: skip
#: Tag of TIFF.
BITS_PER_SAMPLE = 258
#: How each format is saved; known pixels must stay as they are.
SAVING: dict[str, dict[str, Any]] = {
    "PNG": {},
    "TIFF": {"compression": "tiff_deflate"},
    "WEBP": {"lossless": True, "exact": True},
    "BMP": {},
    "JPEG": {"quality": 95, "subsampling": 0},
}
#: What Pillow and the libraries below it raise on damaged files.
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError,
          ZeroDivisionError, OverflowError, struct.error, zlib.error)  # fmt: skip


@dataclass(frozen=True)
class PictureFile:
    """A picture that was read.

    Attributes
    ----------
    pixels : array of shape (height, width) or (height, width, channels)
        uint8, uint16 or float32.
    mode : str
        Pillow's name of the kind: L, LA, RGB, RGBA, I;16 or F.
    turned : bool
        Whether it was turned upright.
    profile : bytes or None
        The colour profile.
    """

    pixels: Array
    mode: str
    turned: bool = False
    profile: bytes | None = field(default=None, repr=False)


def read_picture_file(path: Path, max_pixels: int) -> PictureFile:
    """A picture, upright, in a kind that can be worked on.

    Raises
    ------
    BrokenFileError
        If it is damaged or no picture.
    ValueError
        If it is too large, animated, or of a kind that would not come out as it was.
    """
    with opened(path, max_pixels) as image:
        frames = getattr(image, "n_frames", 1)
        if frames > 1:
            raise ValueError(
                f"{str(path)!r} has {frames} frames; save one of them as a picture of "
                "its own"
            )
        mode = _mode(path, image)
        with _damage(path):
            image.load()
            upright = ImageOps.exif_transpose(image)
            if upright.mode != mode:
                upright = upright.convert(mode)
            pixels = np.array(upright)
        turned = image.getexif().get(0x0112, 1) not in (None, 1)
        return PictureFile(pixels, mode, turned, image.info.get("icc_profile"))


@contextlib.contextmanager
def opened(path: Path, max_pixels: int) -> Iterator[Image.Image]:
    """A picture whose header was read and whose size is allowed; nothing more."""
    if max_pixels < 1:
        raise ValueError(f"--max-pixels must be at least 1, got {max_pixels}")
    with path.open("rb") as stream:
        most = Image.MAX_IMAGE_PIXELS
        # Our own limit holds, which the user can set; Pillow's would warn besides.
        Image.MAX_IMAGE_PIXELS = None
        try:
            with _damage(path):
                image = Image.open(stream, formats=FORMATS)
        finally:
            Image.MAX_IMAGE_PIXELS = most
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
def _damage(path: Path) -> Iterator[None]:
    """Turn what damaged files raise into one error."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise BrokenFileError(
            f"{str(path)!r} is no picture that can be read; PNG, TIFF, JPEG, WebP, "
            "BMP, PPM and GIF can"
        ) from error
    except DAMAGE as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged and cannot be read: {error}"
        ) from error


def _mode(path: Path, image: Image.Image) -> str:
    """The kind of picture to work on, or an error that says why there is none."""
    if _deep_colour(image):
        raise ValueError(
            f"{str(path)!r} has 16 bits for each of several channels, of which Pillow "
            "keeps 8; read it with another library and use ncarl.images.inpaint"
        )
    clear = "transparency" in image.info
    if clear and image.mode not in CLEAR:
        raise ValueError(
            f"{str(path)!r} is of the kind {image.mode} with a colour that stands for "
            "transparency, which would be lost; save it as RGBA"
        )
    if clear:
        return CLEAR[image.mode]
    if image.mode == "P":
        return "RGB"
    if image.mode == "I" and image.format in ("PNG", "PPM"):
        return "I;16"
    mode = TURNED.get(image.mode, image.mode)
    if mode not in WRITABLE:
        raise ValueError(
            f"{str(path)!r} is of the kind {image.mode}, which cannot be written as it "
            "was; save it as grey or RGB"
        )
    return mode


def _deep_colour(image: Image.Image) -> bool:
    """Whether each of several channels has more than 8 bits in the file."""
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(BITS_PER_SAMPLE, (1,))
        return len(image.getbands()) > 1 and max(bits) > 8
    if image.mode not in ("RGB", "RGBA", "LA"):
        return False
    # Pillow names the layout of the file in the parts that it will decode: of a PNG
    # ";16B", of a PPM its largest value.
    parts = [part[3] for part in getattr(image, "tile", ())]
    if image.format == "PPM":
        return any(isinstance(p, tuple) and p[1] > 255 for p in parts)
    return image.format == "PNG" and any(";16B" in str(p) for p in parts)


def check_ending(path: Path) -> str:
    """The format that an output will have, by the end of its name."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(
            f"OUT must end in one of {', '.join(ENDINGS)}, got {str(path)!r}"
        )
    return ENDINGS[ending]


def check_writable(path: Path, mode: str) -> None:
    """Raise if a kind of picture cannot be written to a file of this name."""
    name = check_ending(path)
    if name not in WRITABLE[mode]:
        what = {"LA": "transparency", "RGBA": "transparency", "I;16": "16 bits"}
        raise ValueError(
            f"OUT must be able to hold {what.get(mode, 'floats')}, got "
            f"{str(path)!r}; name a file that ends in "
            f"{' or '.join(e for e, n in ENDINGS.items() if n in WRITABLE[mode])}"
        )


def write_picture(path: Path, pixels: Array, like: PictureFile) -> None:
    """Write a picture; the file is whole or as it was."""
    name = check_ending(path)
    image = Image.fromarray(pixels)
    options = dict(SAVING[name])
    if like.profile is not None and name != "BMP":
        options["icc_profile"] = like.profile
    with replacing(path) as temporary:
        image.save(temporary, format=name, **options)
