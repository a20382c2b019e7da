"""Tests of ``ncarl inpaint``: image files and errors."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from ncarl.cli.inpaint import random_squares_mask, read_picture
from ncarl.images import inpaint

MAGENTA = (255, 0, 255)


def scene(height=18, width=24, channels=3):
    """A smooth image of dtype uint8."""
    y, x = np.mgrid[:height, :width]
    gray = 128 + 60 * np.sin(y / 4.0) + 60 * np.cos(x / 5.0)
    colors = np.stack([gray, 0.8 * gray, 255 - gray, 100 + 0 * gray], axis=2)
    return colors[:, :, :channels].astype(np.uint8)


@pytest.fixture
def missing(rng):
    """Mask of missing pixels."""
    return rng.random((18, 24)) < 0.2


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo [1].png"
    Image.fromarray(scene()).save(path)
    return path


@pytest.fixture
def mask(tmp_path, missing):
    path = tmp_path / "mask.png"
    Image.fromarray(missing.astype(np.uint8) * 255).save(path)
    return path


def read_pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_pixels_under_the_light_mask_are_imputed(ncarl, photo, mask, missing, tmp_path):
    out, page, drawn = (tmp_path / n for n in ("out.png", "page.html", "both.png"))
    result = ncarl("inpaint", photo, "--mask", mask, "-o", out, "--report", page,
                   "--before-after", drawn)  # fmt: skip
    assert (read_pixels(out) == inpaint(scene(), missing)).all()
    for part in ("24 x 18", "color, 8 bits", f"{missing.sum()} pixels", "mask.png",
                 "by patches"):  # fmt: skip
        assert part in result.stdout
    assert "PSNR" not in result.stdout
    html = page.read_text(encoding="utf-8")
    assert "photo [1].png" in html and "data:image/png" in html
    assert read_pixels(drawn).ndim == 3


def test_pixels_of_the_mask_color_are_imputed(ncarl, photo, missing, tmp_path):
    marked = scene()
    out = tmp_path / "out.tif"
    marked[missing] = (250, 3, 251)
    Image.fromarray(marked).save(photo)
    said = ncarl("inpaint", photo, "--mask-color", "#ff00ff", "--tolerance", 5, "-o",
                 out, "-q").stdout  # fmt: skip
    assert said == ""
    assert (read_pixels(out) == inpaint(marked, missing)).all()


def test_pixels_close_to_the_mask_color_are_reported(ncarl, photo, tmp_path):
    marked, out = scene(), tmp_path / "out.png"
    marked[4:7, 3:20] = MAGENTA
    marked[3, 3:20] = marked[7, 3:20] = (230, 30, 225)  # JPEG artifacts
    marked[15, 20] = (230, 30, 225)  # not adjacent
    Image.fromarray(marked).save(photo)
    asked = ("inpaint", photo, "--mask-color", "magenta", "-o", out, "--overwrite")
    said = " ".join(ncarl(*asked).stdout.split())
    assert "34 pixels beside them are nearly of that color" in said
    assert "--tolerance 60" in said
    assert "of that color" not in ncarl(*asked, "--tolerance", 60).stdout


@pytest.mark.parametrize("missing", ["random:0.3", "block:6", "text"])
def test_missing_option_prints_errors_at_hidden_pixels(ncarl, photo, missing):
    said = ncarl("inpaint", photo, "--missing", missing).stdout
    assert "PSNR" in said and "SSIM" in said and "hidden" in said


def test_metrics_need_finite_pixels_and_a_window(ncarl, tmp_path):
    path, drawn = tmp_path / "float.tif", tmp_path / "both.png"
    pixels = scene()[:, :, 0].astype(np.float32)
    pixels[0, 0] = np.nan
    Image.fromarray(pixels).save(path)
    said = ncarl("inpaint", path, "--missing", "block:3", "--before-after", drawn)
    assert "PSNR" not in said.stdout and str(drawn) in said.stdout
    Image.fromarray(scene(6, 6, 2)).save(tmp_path / "small.png")
    said = ncarl("inpaint", tmp_path / "small.png", "--missing", "random:0.3",
                 "--before-after", drawn, "--overwrite")  # fmt: skip
    assert "PSNR" in said.stdout and "SSIM" not in said.stdout


def test_matrix_method(ncarl, photo, mask, missing, tmp_path):
    out = tmp_path / "out.png"
    ncarl("inpaint", photo, "--mask", mask, "-o", out, "--method", "matrix")
    assert (read_pixels(out) == inpaint(scene(), missing, "matrix")).all()


def test_binary_and_gray_masks_are_accepted(ncarl, photo, missing, tmp_path):
    mask, out = tmp_path / "mask.png", tmp_path / "out.png"
    soft = np.where(missing, 200, 90).astype(np.uint8)
    soft[0, 0] = 0
    for marks, words in (
        (np.zeros_like(soft), "nothing to fill"),
        (missing.astype(np.uint8), f"{missing.sum()} pixels"),
        (soft, "3 shades; those in the lighter half count as missing"),
    ):
        Image.fromarray(marks).save(mask)
        said = ncarl("inpaint", photo, "--mask", mask, "-o", out, "--overwrite").stdout
        assert words in said and ("shades" in said) == (marks is soft)
        assert (read_pixels(out)[~missing] == scene()[~missing]).all()


KINDS = {
    "gray": scene(channels=1)[:, :, 0],
    "gray16": scene()[:, :, 0].astype(np.uint16) * 257,
    "float": scene()[:, :, 0].astype(np.float32) / 255,
    "clear": scene(channels=4),
    "grayclear": scene(channels=2),
    "palette": np.asarray(Image.fromarray(scene()).quantize(16).convert("RGB")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_output_has_the_format_of_the_input(ncarl, tmp_path, mask, missing, kind):
    suffix = ".tif" if kind == "float" else ".png"
    path, out, expected = (
        tmp_path / f"in{suffix}",
        tmp_path / f"out{suffix}",
        KINDS[kind],
    )
    image = Image.fromarray(expected)
    (image.quantize(16) if kind == "palette" else image).save(path)
    ncarl("inpaint", path, "--mask", mask, "-o", out)
    read = read_pixels(out)
    assert read.dtype == expected.dtype
    assert (read[~missing] == expected[~missing]).all()
    assert (read == inpaint(expected, missing)).all()


def test_exif_rotation_is_applied(ncarl, tmp_path, photo):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(scene()).save(photo, exif=exif, icc_profile=b"a profile")
    mask, out = tmp_path / "m.png", tmp_path / "out.png"
    lost = np.zeros((24, 18), dtype=bool)
    lost[5, 7] = True
    Image.fromarray(lost.astype(np.uint8) * 255).save(mask)
    assert "upright" in ncarl("inpaint", photo, "--mask", mask, "-o", out).stdout
    turned = np.rot90(scene(), -1)
    assert (read_pixels(out)[~lost] == turned[~lost]).all()
    with Image.open(out) as written:
        assert written.getexif().get(0x0112, 1) == 1
        assert written.info["icc_profile"] == b"a profile"


def test_jpeg_output_gives_a_warning(ncarl, photo, mask, tmp_path):
    out = tmp_path / "out.jpg"
    said = ncarl("inpaint", photo, "--mask", mask, "-o", out).stdout
    assert "JPEG changes observed pixels" in said
    assert np.abs(read_pixels(out).astype(int) - scene()).mean() < 5


def test_files_are_replaced_only_with_overwrite(fails, ncarl, photo, mask, tmp_path):
    out = tmp_path / "out.png"
    out.write_bytes(b"mine")
    assert "--overwrite" in fails("inpaint", photo, "--mask", mask, "-o", out)
    assert "the input itself" in fails("inpaint", photo, "--mask", mask, "-o", photo)
    assert out.read_bytes() == b"mine"
    why = fails("inpaint", photo, "--mask", mask, "-o", mask, "--overwrite")
    assert "is the file of --mask" in why
    why = fails("inpaint", photo, "--mask", mask, "-o", out, "--before-after", out,
                "--overwrite")  # fmt: skip
    assert "one file" in why


MISUSE = [
    ((), "give one of --mask"),
    (("--missing", "text", "--mask-color", "red"), "got 2 of them"),
    (("--missing", "random:2"), "--missing must be"),
    (("--missing", "block:x"), "--missing must be"),
    (("--missing", "block:18"), "smaller than the picture"),
    (("--mask-color", "nocolor", "-o", "x.png"), "must be a color"),
    (("--mask-color", "#ff00ff", "-o", "x.png"), "no pixel has this color"),
    (("--mask-color", "red"), "with -o"),
    (("--missing", "text", "--tolerance", 3), "goes with --mask-color"),
    (("--missing", "text", "-o", "x.txt"), "OUT must end in"),
    (("--missing", "text", "--before-after", "x.jpg"), "must end in .png"),
    (("--missing", "text", "--report", "x.txt"), "--report must end in"),
    (("--missing", "text", "--max-pixels", 431), "give --max-pixels 432"),
]


@pytest.mark.parametrize(("options", "words"), MISUSE)
def test_invalid_options_give_a_one_line_error(
    fails, photo, options, words, monkeypatch
):
    monkeypatch.chdir(photo.parent)
    assert words in fails("inpaint", photo, *options)


def test_mask_color_must_fit_the_image_mode(fails, ncarl, tmp_path):
    path, out = tmp_path / "gray.png", tmp_path / "out.png"
    Image.fromarray(scene()[:, :, 0]).save(path)
    marked = ("inpaint", path, "-o", out, "--mask-color")
    assert "is not gray" in fails(*marked, "red")
    lightest = int(scene()[:, :, 0].max())
    said = ncarl(*marked, f"rgb({lightest},{lightest},{lightest})").stdout
    assert f"{(scene()[:, :, 0] == lightest).sum()} pixels" in said
    Image.fromarray(scene()[:, :, 0].astype(np.uint16)).save(path)
    assert "needs a picture with 8 bits" in fails(*marked, "red", "--overwrite")


def test_masks_of_wrong_size_or_without_observed_pixels_fail(fails, photo, tmp_path):
    mask = tmp_path / "mask.png"
    asked = ("inpaint", photo, "--mask", mask, "-o", tmp_path / "out.png")
    Image.new("L", (25, 18)).save(mask)
    why = fails(*asked)
    assert "24 x 18" in why and "25 x 18" in why
    Image.new("L", (24, 18), 255).save(mask)
    assert "inverted" in fails(*asked)


def make_png(side, bits, data):
    """A color PNG with a given header size and arbitrary data."""

    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", side, side, bits, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))  # fmt: skip


def test_huge_images_are_refused_before_decoding(fails, photo, monkeypatch):
    photo.write_bytes(make_png(60_000, 8, b""))
    monkeypatch.setattr(Image.Image, "load", None)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)
    limit = Image.MAX_IMAGE_PIXELS
    assert "3,600,000,000 pixels" in fails("inpaint", photo, "--missing", "text")
    assert limit == Image.MAX_IMAGE_PIXELS


def test_damaged_and_other_files_give_a_one_line_error(fails, photo):
    whole = photo.read_bytes()
    photo.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in fails("inpaint", photo, "--missing", "text")
    photo.write_bytes(b"a,b\n1,2\n")
    assert "cannot be read as a picture" in fails("inpaint", photo, "--missing", "text")
    photo.unlink()
    assert "No such file" in fails("inpaint", photo, "--missing", "text")


def test_unsupported_image_modes_give_an_error(fails, photo, tmp_path):
    other = tmp_path / "cmyk.tif"
    Image.new("CMYK", (24, 18)).save(other)
    assert "CMYK" in fails("inpaint", other, "--missing", "text")
    moving = tmp_path / "two.gif"
    frames = [Image.new("L", (9, 9), shade) for shade in (0, 200)]
    frames[0].save(moving, save_all=True, append_images=frames[1:])
    assert "2 frames" in fails("inpaint", moving, "--missing", "random:0.5")
    clear = tmp_path / "clear.png"
    Image.fromarray(scene(channels=4)).save(clear)
    why = fails("inpaint", clear, "--missing", "text", "-o", tmp_path / "x.jpg")
    assert "hold transparency" in why


def make_tiff(bits):
    """A 4 x 4 color TIFF with the given bits per channel."""
    entries = [(256, 3, 1, 4), (257, 3, 1, 4), (258, 3, 3, 122), (259, 3, 1, 1),
               (262, 3, 1, 2), (273, 4, 1, 128), (277, 3, 1, 3), (278, 3, 1, 4),
               (279, 4, 1, 48 * bits // 8)]  # fmt: skip
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    tags = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return head + tags + bytes(4) + struct.pack("<3H", *[bits] * 3) + bytes(96)


@pytest.mark.parametrize(
    ("deep", "plain"),
    [
        (make_png(4, 16, bytes(4 * 25)), make_png(4, 8, bytes(4 * 13))),
        (make_tiff(16), make_tiff(8)),
        (b"P6 4 4 65535\n" + bytes(96), b"P6 4 4 255\n" + bytes(48)),
        (b"P3 4 4 999\n" + b"0 " * 48, b"P3 4 4 99\n" + b"0 " * 48),
    ],
    ids=["png", "tiff", "ppm", "plain ppm"],
)
def test_color_images_with_16_bits_give_an_error(fails, photo, deep, plain):
    photo.write_bytes(plain)
    assert read_picture(photo, 99).mode == "RGB"
    photo.write_bytes(deep)
    assert "16 bits" in fails("inpaint", photo, "--missing", "random:0.5")


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_transparent_color_is_preserved(ncarl, tmp_path, mask, mode):
    path, out = tmp_path / "named.png", tmp_path / "out.png"
    image = Image.fromarray(scene()).convert(mode)
    image.save(path, transparency=image.getpixel((3, 3)))
    ncarl("inpaint", path, "--mask", mask, "-o", out)
    alpha = read_pixels(out)[..., -1]
    assert alpha.shape == (18, 24) and alpha[3, 3] == 0 and alpha.max() == 255
    wide = tmp_path / "wide.png"
    Image.new("I;16", (4, 4)).save(wide, transparency=0)
    with pytest.raises(ValueError, match="would be lost"):
        read_picture(wide, 99)


def test_imputed_transparent_pixels_are_reported(ncarl, tmp_path, mask, missing):
    path, out = tmp_path / "clear.png", tmp_path / "out.png"
    picture = scene(channels=4)
    picture[tuple(np.argwhere(missing)[0])][3] = 0
    for image, noted in ((picture, True), (scene(channels=4), False)):
        Image.fromarray(image).save(path)
        said = ncarl("inpaint", path, "--mask", mask, "-o", out, "--overwrite").stdout
        assert ("1 of the missing pixels are transparent" in said) == noted


def test_hidden_squares_are_disjoint_and_few(rng):
    hidden = random_squares_mask((60, 60), 9, 3)
    assert hidden.sum() % 81 == 0
    assert 81 <= hidden.sum() <= 0.3 * 3600
    assert (hidden == random_squares_mask((60, 60), 9, 3)).all()
