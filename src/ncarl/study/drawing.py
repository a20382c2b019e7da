"""The figure of every plan, drawn from what was kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets import load_sample_image
from ncarl.datasets.sources import source_of
from ncarl.study.agenda import Results, final_cells
from ncarl.study.conduct import ARRAYS
from ncarl.study.entries import HONEST, Entry
from ncarl.study.evidence import AS_PRINTED, OURS
from ncarl.study.plan import Plan, Setting
from ncarl.study.printed import printed_figures
from ncarl.study.theory import Facts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ncarl.plots import Panel


@dataclass(frozen=True)
class Kept:
    """What a figure is drawn from.

    Attributes
    ----------
    plan : Plan
        The table or figure.
    entries : sequence of Entry
        Its entries under all protocols.
    results : mapping of str to Result
        Finished cells by key.
    folder : Path
        Where completed matrices lie.
    facts : Facts or None
        What the check of the proof found.
    quick : bool
        Whether photographs are at their reduced size.
    """

    plan: Plan
    entries: Sequence[Entry]
    results: Results
    folder: Path
    facts: Facts | None = None
    quick: bool = False

    def shown(self) -> list[Entry]:
        """Entries of one protocol: the honest one if it was run."""
        protocols = {e.protocol for e in self.entries}
        wanted = HONEST if HONEST in protocols else next(iter(protocols), HONEST)
        return [e for e in self.entries if e.protocol == wanted]


def draw(kept: Kept) -> Figure | None:
    """The figure of a plan, or None where there is nothing to show."""
    return DRAWERS[kept.plan.kind](kept)


def _table(kept: Kept) -> Figure | None:
    """Ours and the printed values side by side."""
    from ncarl.study.figures import table_figure

    entries = kept.shown()
    if not any(e.error is not None for e in entries):
        return None
    title = _headed(kept, entries)
    return table_figure(entries, measure=kept.plan.measure, title=title)


def _headed(kept: Kept, entries: Sequence[Entry]) -> str:
    """Title of a figure, with how parameters were chosen and whether it is reduced."""
    reduced = ", reduced" if kept.quick else ""
    return f"{kept.plan.title} ({entries[0].protocol} protocol{reduced})"


def _rates(kept: Kept) -> Figure | None:
    """Error and time against the share that is hidden."""
    from ncarl.study.figures import against_rate

    entries = kept.shown()
    if not any(e.error is not None for e in entries):
        return None
    return against_rate(entries, title=_headed(kept, entries))


def _neighbors(kept: Kept) -> Figure | None:
    """Error against the number of neighbours."""
    from ncarl.study.figures import against_neighbors

    curves: dict[str, list[tuple[int, float, float | None]]] = {}
    best: dict[str, int] = {}
    known = printed_figures()["figures"]["fig7"]["best_k"]
    for e in kept.shown():
        if e.error is None:
            continue
        form = "as printed" if e.method.startswith(AS_PRINTED) else "NCARL"
        name = f"{e.group}, {form}"
        point = (int(e.params["n_neighbors"]), e.error, e.error_sd)
        curves.setdefault(name, []).append(point)
        if e.group in known:
            best[name] = int(known[e.group])
    return against_neighbors(curves, best) if curves else None


def curves_of(kept: Kept) -> dict[tuple[str, str], Sequence[float | None]]:
    """The objective of every step, by set and form of NCARL."""
    curves: dict[tuple[str, str], Sequence[float | None]] = {}
    for setting, method, key in _cells(kept):
        result = kept.results.get(key)
        if result is not None and result.curve:
            curves[setting.label, method] = result.curve
    return curves


def _cells(kept: Kept) -> list[tuple[Setting, str, str]]:
    """Setting, method and key of the first seed of everything in a plan."""
    return [
        (setting, one.name, final_cells(kept.plan, setting, one, params)[0].key)
        for setting in kept.plan.settings
        for one in setting.contenders
        for params in one.points()[:1]
    ]


def _curves(kept: Kept) -> Figure | None:
    """The objective, step by step."""
    from ncarl.study.figures import objective_curves

    forms = {AS_PRINTED: "as printed", OURS: "NCARL"}
    curves = {
        f"{name}, {forms.get(method, method)}": [v for v in curve if v is not None]
        for (name, method), curve in curves_of(kept).items()
    }
    claim = int(printed_figures()["figures"]["fig6"]["steps"])
    return objective_curves(curves, claim=claim) if curves else None


def photographs(plan: Plan, quick: bool, *, grey: bool) -> dict[str, Array]:
    """The photographs of a figure by name."""
    step = plan.options["step"] * (4 if quick else 1)
    names = plan.options["photos"]
    return {name: load_sample_image(name, grey=grey, step=step) for name in names}


def credits_of(plan: Plan) -> str:
    """Whose photographs a figure shows."""
    return "; ".join(source_of(name).citation for name in plan.options["photos"])


def energy_of(kept: Kept) -> dict[str, float]:
    """Share of the squared singular values that a tenth of them holds."""
    shares = {}
    for name, image in photographs(kept.plan, kept.quick, grey=True).items():
        squares = np.linalg.svd(image, compute_uv=False) ** 2
        tenth = max(1, len(squares) // 10)
        shares[name] = float(squares[:tenth].sum() / squares.sum())
    return shares


def _spectrum(kept: Kept) -> Figure | None:
    """Photographs and their singular values."""
    from ncarl.study.figures import spectrum

    images = photographs(kept.plan, kept.quick, grey=True)
    return spectrum(images, credit=credits_of(kept.plan))


def _gallery(kept: Kept) -> Figure | None:
    """The photographs."""
    from ncarl.plots import Panel
    from ncarl.study.figures import picture_grid

    images = photographs(kept.plan, kept.quick, grey=False)
    row = [
        Panel(image, name, f"{image.shape[1]} x {image.shape[0]}")
        for name, image in images.items()
    ]
    return picture_grid([row], credit=credits_of(kept.plan))


@dataclass
class Coloured:
    """A colour picture put together from its channels.

    Attributes
    ----------
    parts : dict of str to list of array
        "seen", "filled" and "smooth", a channel each.
    ranks, psnrs : list of float
        Of the channels.
    """

    parts: dict[str, list[Array]] = field(default_factory=dict)
    ranks: list[float] = field(default_factory=list)
    psnrs: list[float] = field(default_factory=list)

    def picture(self, part: str) -> Array:
        """The three channels as one picture."""
        return np.stack(self.parts[part], axis=2)


def coloured(kept: Kept) -> dict[tuple[str, str], Coloured]:
    """Completed pictures by group and method; only those with all their channels."""
    found: dict[tuple[str, str], Coloured] = {}
    for setting, method, key in _cells(kept):
        path, result = kept.folder / ARRAYS / f"{key}.npz", kept.results.get(key)
        if result is None or not path.exists():
            continue
        one = found.setdefault((setting.group, method), Coloured())
        with np.load(path, allow_pickle=False) as arrays:
            for part in ("seen", "filled", "smooth"):
                one.parts.setdefault(part, []).append(arrays[part])
        one.ranks.append(float(result.facts.get("rank_above_1e-3", np.nan)))
        one.psnrs.append(float(result.scores.get("psnr", np.nan)))
    return {name: one for name, one in found.items() if len(one.ranks) == 3}


def _recovered(kept: Kept) -> Figure | None:
    """Pictures with gaps beside their completions."""
    from ncarl.plots import Panel
    from ncarl.study.figures import picture_grid

    rows: dict[str, list[Panel]] = {}
    for (group, _), one in coloured(kept).items():
        mask = group.split(", ")[-1]
        decibels = f"{np.mean(one.psnrs):.1f} dB on hidden pixels"
        rows.setdefault(mask, []).extend(
            [
                Panel(one.picture("seen"), group),
                Panel(np.clip(one.picture("filled"), 0, 1), "recovered", decibels),
            ]
        )
    if not rows:
        return None
    return picture_grid(list(rows.values()), credit=credits_of(kept.plan))


def ranks_of(kept: Kept) -> dict[str, dict[float, float]]:
    """Mean rank of the channels by gamma, by photograph."""
    ranks: dict[str, dict[float, float]] = {}
    for (group, method), one in coloured(kept).items():
        gamma = float(method.rpartition("=")[2])
        ranks.setdefault(group, {})[gamma] = float(np.mean(one.ranks))
    return ranks


def _noisy(kept: Kept) -> Figure | None:
    """The noisy model at several strengths."""
    from ncarl.plots import Panel
    from ncarl.study.figures import picture_grid

    rows: dict[str, list[Panel]] = {}
    for (group, method), one in coloured(kept).items():
        row = rows.setdefault(group, [Panel(one.picture("seen"), group, "half hidden")])
        gamma = float(method.rpartition("=")[2])
        smooth = np.clip(one.picture("smooth"), 0.0, 1.0)
        note = f"rank {np.mean(one.ranks):.0f}, {np.mean(one.psnrs):.1f} dB"
        row.append(Panel(smooth, f"gamma = {gamma:g}", note))
    if not rows:
        return None
    return picture_grid(list(rows.values()), credit=credits_of(kept.plan))


def _theory(kept: Kept) -> Figure | None:
    """The links of the proof, in numbers."""
    from ncarl.study.figures import proof_chain

    return None if kept.facts is None else proof_chain(kept.facts)


DRAWERS: Mapping[str, Callable[[Kept], Figure | None]] = {
    "table": _table,
    "rates": _rates,
    "neighbors": _neighbors,
    "curves": _curves,
    "spectrum": _spectrum,
    "gallery": _gallery,
    "recovered": _recovered,
    "noisy": _noisy,
    "theory": _theory,
}
