"""The work of ``ncarl inpaint``: read, fill, measure, write."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ncarl.cli.completion import on_terminal
from ncarl.cli.inpaint_files import (
    PictureFile,
    check_ending,
    check_writable,
    read_picture_file,
    write_picture,
)
from ncarl.cli.inpaint_gaps import GapOptions, Gaps, find_gaps
from ncarl.cli.outputs import check_targets
from ncarl.cli.reporting import check_report
from ncarl.core.types import Array
from ncarl.images import inpaint
from ncarl.metrics import WINDOW, psnr, ssim


@dataclass(frozen=True)
class Job:
    """One run of ``ncarl inpaint``; the attributes are its options."""

    source: Path
    gaps: GapOptions
    method: str
    seed: int
    max_pixels: int
    target: Path | None
    before_after: Path | None
    report: Path | None
    overwrite: bool
    quiet: bool


@dataclass(frozen=True)
class Done:
    """What a run found.

    Attributes
    ----------
    picture : PictureFile
        What was read.
    gaps : Gaps
        What was missing.
    filled : array
        The picture without gaps.
    seconds : float
        How long it took to fill them.
    psnr, ssim : float or None
        How near the result is to the truth, over the whole picture, where that is
        known.
    """

    job: Job
    picture: PictureFile
    gaps: Gaps
    filled: Array
    seconds: float
    psnr: float | None = None
    ssim: float | None = None


def run(job: Job) -> Done:
    """Fill a picture and write what was asked for."""
    check(job)
    picture = read_picture_file(job.source, job.max_pixels)
    if job.target is not None:
        check_writable(job.target, picture.mode)
    gaps = find_gaps(job.gaps, picture, job.max_pixels)
    if gaps.mask.all():
        raise ValueError(
            f"all pixels of {str(job.source)!r} are missing ({gaps.how}); is the mask "
            "inverted? Light means missing"
        )
    start = time.perf_counter()
    filled = inpaint(
        picture.pixels,
        gaps.mask,
        job.method,
        random_state=job.seed,
        progress=on_terminal() and not job.quiet,
    )
    done = Done(job, picture, gaps, filled, time.perf_counter() - start, *_near(
        picture.pixels, filled, gaps
    ))  # fmt: skip
    if job.target is not None:
        write_picture(job.target, filled, picture)
    if job.before_after is not None:
        from ncarl.cli.inpaint_report import draw
        from ncarl.plots import save_figure

        save_figure(draw(done), job.before_after)
    return done


def check(job: Job) -> None:
    """Raise if the run cannot end well, before the time for it is spent."""
    if job.target is None and job.gaps.missing is None:
        raise ValueError("name the file for the filled picture with -o")
    if job.target is not None:
        check_ending(job.target)
    drawing = job.before_after
    if drawing is not None and drawing.suffix.lower() != ".png":
        raise ValueError(f"--before-after must end in .png, got {str(drawing)!r}")
    if job.seed < 0:
        raise ValueError(f"--seed must be at least 0, got {job.seed}")
    named = {"OUT": job.target, "--before-after": drawing}
    targets = {flag: path for flag, path in named.items() if path is not None}
    check_targets(job.source, targets, job.overwrite)
    mask = job.gaps.mask
    for flag, path in targets.items():
        if mask is not None and path.exists() and mask.exists() and path.samefile(mask):
            raise ValueError(f"{flag} {str(path)!r} is the mask; name another file")
    check_report(job.report, job.source)


def _near(truth: Array, filled: Array, gaps: Gaps) -> tuple[float | None, float | None]:
    """PSNR and SSIM of the whole picture, transparency left out."""
    if not gaps.hidden:
        return None, None
    peak = peak_of(truth)
    colours = (
        truth.shape[2] - 1 if truth.ndim == 3 and truth.shape[2] in (2, 4) else None
    )
    if truth.ndim == 3:
        truth, filled = truth[..., :colours], filled[..., :colours]
    a, b = truth / peak, filled / peak
    if not np.isfinite(a).all():
        return None, None
    return psnr(a, b), ssim(a, b) if min(a.shape[:2]) >= WINDOW else None


def peak_of(pixels: Array) -> float:
    """The value of white."""
    if pixels.dtype.kind == "f":
        return float(max(np.nanmax(np.abs(pixels)), 1e-300))
    return float(np.iinfo(pixels.dtype).max)
