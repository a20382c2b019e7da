"""``ncarl inpaint``: fill in missing pixels of a picture in a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli.reporting import ReportOption

GAPS, WORK, OUTPUT = "What is missing (one of these)", "How it is filled", "Output"
EXAMPLES = (
    "ncarl inpaint photo.png --mask scratches.png -o repaired.png",
    "ncarl inpaint photo.png --mask-color '#ff00ff' -o repaired.png",
    "ncarl inpaint photo.png --missing random:0.5 --before-after try.png",
)
#: Pixels that a picture may have unless told otherwise.
MOST_PIXELS = 50_000_000


class Way(StrEnum):
    """Methods of `ncarl.images.inpaint`."""

    PATCHES = "patches"
    MATRIX = "matrix"


def inpaint(
    source: Annotated[
        Path,
        typer.Argument(metavar="PICTURE", show_default=False,
                       help="PNG, TIFF, JPEG, WebP, BMP, PPM or GIF; grey or colour."),
    ],
    mask: Annotated[
        Path | None,
        typer.Option(metavar="PATH", rich_help_panel=GAPS,
                     help="A picture of the same size, light where pixels are missing "
                     "and dark where they are known. Shades count by which half they "
                     "are in."),
    ] = None,
    mask_color: Annotated[
        str | None,
        typer.Option(metavar="COLOUR", rich_help_panel=GAPS,
                     help="Pixels of this colour are missing: '#ff00ff', 'magenta'."),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(metavar="random:SHARE|block:SIDE|text", rich_help_panel=GAPS,
                     help="To try it out: hides pixels itself, and tells how near the "
                     "filled ones come to them."),
    ] = None,
    tolerance: Annotated[
        int | None,
        typer.Option(metavar="0-255", rich_help_panel=GAPS, show_default="0",
                     help="How far a channel may be off --mask-color."),
    ] = None,
    method: Annotated[
        Way,
        typer.Option(rich_help_panel=WORK,
                     help="patches learns how small patches of the picture look; "
                     "matrix is the paper's way, and less exact."),
    ] = Way.PATCHES,
    seed: Annotated[
        int,
        typer.Option(rich_help_panel=WORK,
                     help="Seed of which patches to learn from, and of --missing."),
    ] = 0,
    max_pixels: Annotated[
        int,
        typer.Option(metavar="COUNT", rich_help_panel=WORK,
                     help="Refuse larger pictures, before they are unpacked."),
    ] = MOST_PIXELS,
    target: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="OUT", show_default=False,
                     rich_help_panel=OUTPUT,
                     help="The filled picture; PNG and TIFF keep known pixels bit for "
                     "bit. Not needed with --missing."),
    ] = None,
    before_after: Annotated[
        Path | None,
        typer.Option(metavar="PATH.png", rich_help_panel=OUTPUT,
                     help="Draw the picture before and after, side by side."),
    ] = None,
    report: ReportOption = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", rich_help_panel=OUTPUT,
                     help="Replace files that exist."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT,
                           help="Print nothing but errors.")
    ] = False,
) -> None:  # fmt: skip
    """Fill in the missing pixels of a picture: scratches, text, dead pixels, holes.

    The known pixels stay as they are. The picture is turned upright if the camera
    noted that it lies on its side; its colour profile is kept, other notes are not.
    """
    from ncarl.cli.inpaint_gaps import GapOptions
    from ncarl.cli.inpaint_report import print_summary, write_page
    from ncarl.cli.inpaint_work import Job, run

    gaps = GapOptions(mask, mask_color, missing, tolerance, seed)
    job = Job(source, gaps, str(method), seed, max_pixels, target, before_after, report,
              overwrite, quiet)  # fmt: skip
    done = run(job)
    if not quiet:
        print_summary(done)
    if report is not None:
        write_page(done, report)
