"""Image inpainting: patches and the matrix mode compared with scikit-image.

Usage: NCARL_DATA=... python benchmarks/pictures.py [--pictures all] [--masks all]
       [--matrix] [--json results/pictures.json] [--figures docs/images]

Seven photographs of MSRC-v2 (320 x 240) and the two of scikit-learn (reduced to
320 x 213), in color. Masks are the same for all methods: 30, 50 and 70% of the pixels
at random, text over the whole image, twelve squares of 20 x 20. The baseline is
scikit-image's ``inpaint_biharmonic``. PSNR and SSIM are over the whole image, including
observed pixels, of values between 0 and 1 (results are rounded to 8 bits for all
methods). Nothing was selected on these images: settings of ``inpaint`` were selected on
those of scikit-image (astronaut, chelsea, coffee, motorcycle, rocket, grass, gravel).

An existing JSON file is updated image by image. "seconds" is wall time, which depends
on other load; "processor" is the CPU time of all threads.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from common import data_folder, print_table, versions, write_json

from ncarl import masks
from ncarl.cli.inpaint import random_squares_mask, text_mask
from ncarl.datasets import load_image_folder
from ncarl.images import inpaint
from ncarl.metrics import psnr, ssim

KINDS = ("random 30%", "random 50%", "random 70%", "text", "blocks 20x20")
METHODS = ("patches", "biharmonic")
#: Color of missing pixels in figures.
GAP = (232, 163, 61)


def load_photographs():
    """Load photographs by name, as 8-bit arrays."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    found = {}
    folder = data_folder()
    if folder is not None and (folder / "msrc_v2").is_dir():
        read = load_image_folder(folder / "msrc_v2", gray=False)
        found |= {name: np.rint(255 * x).astype(np.uint8) for name, x in read.items()}
    else:
        print("photographs of MSRC-v2: skipped, msrc_v2 is not in NCARL_DATA")
    for name in ("china", "flower"):
        image = Image.fromarray(load_sample_image(f"{name}.jpg"))
        found[name] = np.asarray(image.resize((320, 213), Image.Resampling.LANCZOS))
    return found


def make_mask(kind, shape):
    """Mask of missing pixels."""
    if kind.startswith("random"):
        return masks.random(shape, int(kind[7:-1]) / 100, rng=0)
    return text_mask(shape) if kind == "text" else random_squares_mask(shape, 20, 0)


def biharmonic(picture, hidden):
    """Inpaint with scikit-image, to an 8-bit array."""
    from skimage.restoration import inpaint_biharmonic

    masked = np.where(hidden[:, :, None], 0.0, picture / 255.0)
    filled = inpaint_biharmonic(masked, hidden, channel_axis=-1)
    result = picture.copy()
    result[hidden] = np.rint(255 * np.clip(filled[hidden], 0.0, 1.0)).astype(np.uint8)
    return result


def measure(method, picture, hidden):
    """Measure PSNR, SSIM and seconds of one method on one image."""
    wall, processor = time.perf_counter(), time.process_time()
    if method == "biharmonic":
        filled = biharmonic(picture, hidden)
    else:
        filled = inpaint(picture, hidden, method)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    truth, guess = picture / 255.0, filled / 255.0
    return {
        "psnr": psnr(truth, guess),
        "ssim": ssim(truth, guess),
        "seconds": wall,
        "processor": processor,
    }


def mean_lines(results):
    """Lines of the table of means over images, by mask."""
    for kind in KINDS:
        cells = [r[kind] for r in results.values() if kind in r]
        if not cells:
            continue
        methods = [m for m in (*METHODS, "matrix") if all(m in c for c in cells)]
        line = {"mask": kind, "pictures": len(cells)}
        for m in methods:
            line[m] = f"{np.mean([c[m]['psnr'] for c in cells]):.2f} dB"
        gains = [c["patches"]["psnr"] - c["biharmonic"]["psnr"] for c in cells]
        line["gain"] = f"{np.mean(gains):+.2f} dB"
        line["smallest gain"] = f"{min(gains):+.2f} dB"
        for m in methods:
            line[f"{m} SSIM"] = f"{np.mean([c[m]['ssim'] for c in cells]):.4f}"
        line["processor s"] = float(np.mean([c["patches"]["processor"] for c in cells]))
        yield line


def cell_lines(results):
    """Lines of the table of all images and masks."""
    for name, kinds in results.items():
        for kind, cells in kinds.items():
            line = {"picture": name, "mask": kind}
            for m, cell in cells.items():
                line[m] = f"{cell['psnr']:.2f}"
                line[f"{m} SSIM"] = f"{cell['ssim']:.4f}"
            yield line


def read_results(path):
    """Read existing results."""
    if path and Path(path).exists():
        return json.loads(Path(path).read_text())["pictures"]
    return {}


def draw(folder):
    """Draw masked, inpainted and true photographs that may be published, small."""
    from PIL import Image

    pictures = {k: x for k, x in load_photographs().items() if k in ("china", "flower")}
    shown = (("china", "text"), ("flower", "random 50%"), ("flower", "blocks 20x20"))
    for name, kind in shown:
        picture = pictures[name][:160, 40:280]
        hidden = make_mask(kind, picture.shape[:2])
        masked = np.where(hidden[:, :, None], GAP, picture).astype(np.uint8)
        gap = np.full((picture.shape[0], 6, 3), 255, dtype=np.uint8)
        row = [masked, gap, inpaint(picture, hidden), gap, picture]
        image = Image.fromarray(np.concatenate(row, axis=1))
        # A palette makes the file smaller, without a visible difference.
        path = Path(folder) / f"pictures-{kind.split()[0]}.png"
        image.quantize(256).save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", default=None, help="names, comma-separated")
    parser.add_argument("--masks", default=None, help="prefixes, comma-separated")
    parser.add_argument("--matrix", action="store_true", help="also the matrix mode")
    parser.add_argument("--json", default=None)
    parser.add_argument("--figures", default=None, metavar="FOLDER")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.figures:
        draw(options.figures)
        return
    results = read_results(options.json)
    wanted = options.pictures.split(",") if options.pictures else None
    starts = tuple(options.masks.split(",")) if options.masks else ("",)
    methods = (*METHODS, "matrix") if options.matrix else METHODS
    for name, picture in load_photographs().items():
        if wanted and name not in wanted:
            continue
        here = results.setdefault(name, {})
        for kind in (k for k in KINDS if k.startswith(starts)):
            hidden = make_mask(kind, picture.shape[:2])
            cells = {m: measure(m, picture, hidden) for m in methods}
            here[kind] = {**here.get(kind, {}), **cells}
            print(name, kind, {m: round(c["psnr"], 2) for m, c in cells.items()},
                  flush=True)  # fmt: skip
            write_json(options.json, {"versions": versions(), "pictures": results})
    print_table(list(cell_lines(results)))
    print()
    print_table(list(mean_lines(results)))


if __name__ == "__main__":
    main()
