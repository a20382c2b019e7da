"""What ``ncarl inpaint`` prints, draws and writes on a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from ncarl.cli.files import shown
from ncarl.cli.inpaint_files import check_ending
from ncarl.cli.inpaint_work import Done, peak_of
from ncarl.core.types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Kinds of pictures in words.
KINDS = {
    "L": "grey, 8 bits",
    "LA": "grey with transparency, 8 bits",
    "RGB": "colour, 8 bits",
    "RGBA": "colour with transparency, 8 bits",
    "I;16": "grey, 16 bits",
    "F": "grey, floats",
}


def print_summary(done: Done) -> None:
    """Print the run as lines of a name and what there is to say."""
    console = Console()
    for name, line in lines(done):
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        console.print(shown(line), markup=False, highlight=False, soft_wrap=True)


def lines(done: Done) -> Iterator[tuple[str, str]]:
    """Names and what there is to say of a run."""
    height, width = done.gaps.mask.shape
    upright = ", turned upright" if done.picture.turned else ""
    yield "picture", f"{width} x {height}, {KINDS[done.picture.mode]}{upright}"
    count = int(done.gaps.mask.sum())
    share = count / done.gaps.mask.size
    yield "missing", f"{count:,} pixels ({share:.1%}), {done.gaps.how}"
    if done.gaps.note:
        yield "note", done.gaps.note
    if count:
        yield "filled", f"by {done.job.method} in {done.seconds:.1f} s"
    else:
        yield "filled", "nothing was missing; the picture is as it was"
    if done.psnr is not None:
        yield "quality", near(done)
    yield from _written(done)


def near(done: Done) -> str:
    """How near the result is to the truth."""
    similar = "" if done.ssim is None else f", SSIM {done.ssim:.4f}"
    return f"PSNR {done.psnr:.2f} dB{similar} (whole picture against the truth)"


def _written(done: Done) -> Iterator[tuple[str, str]]:
    """The files."""
    job = done.job
    if job.target is not None:
        yield "written", str(job.target)
        if check_ending(job.target) == "JPEG":
            yield "note", "JPEG changes known pixels a little; PNG does not"
    if job.before_after is not None:
        yield "drawn", str(job.before_after)


def draw(done: Done) -> Figure:
    """The picture before, after, and the truth where that is known."""
    from ncarl.plots import Panel, before_after

    share = done.gaps.mask.mean()
    quality = "" if done.psnr is None else f"PSNR {done.psnr:.2f} dB"
    seen = shades(done.picture.pixels)
    holes = done.gaps.mask if seen.ndim == 2 else done.gaps.mask[:, :, None]
    panels = [
        Panel(np.where(holes, np.nan, seen), f"before: {share:.1%} missing"),
        Panel(shades(done.filled), f"after: filled by {done.job.method}", quality),
    ]
    if done.gaps.hidden:
        panels.append(Panel(seen, "truth"))
    return before_after(panels)


def shades(pixels: Array) -> Array:
    """A picture between 0 and 1, grey or with three channels."""
    scaled = pixels / peak_of(pixels)
    if scaled.ndim == 3 and scaled.shape[2] == 2:
        return scaled[:, :, 0]
    return scaled if scaled.ndim == 2 else scaled[:, :, :3]


def write_page(done: Done, path: Path) -> None:
    """Write the page of a run, and say so."""
    from ncarl.cli.reporting import command_line, say_written, versions
    from ncarl.pages import Page

    page = Page(
        f"Filled: {done.job.source.name}",
        "Missing pixels were filled from the picture itself; known ones are as they "
        "were.",
    )
    facts = {name: text for name, text in lines(done) if name != "note"}
    page.facts({**facts, **versions()}).code(command_line())
    page.notes([text for name, text in lines(done) if name == "note"])
    page.heading("Before and after")
    page.figure(draw(done), "Missing pixels are shown in orange.")
    page.save(path)
    say_written(path, quiet=done.job.quiet)
