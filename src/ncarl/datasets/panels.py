"""Panels and sensors: units over time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.arrays import NUMBER, TEXT, WHOLE, read_arrays, refuse
from ncarl.datasets.sources import locate

#: Name of a panel -> names of the units if the file has none: the first, the others.
PANELS = {"smoking": ("California", "control state"), "basque": ("Spain", "region")}


@dataclass(frozen=True, eq=False)
class Panel:
    """One number for each unit and year.

    Attributes
    ----------
    outcome : array of shape (units, years)
        The numbers.
    units : tuple of str
        Names of the rows.
    years : int array of shape (years,)
        Years of the columns.
    treated : boolean array of shape (units, years) or None
        Where something was done whose effect is asked for; None if the file does not
        say.
    name : str
        The data set, as `describe` knows it.
    """

    outcome: Array
    units: tuple[str, ...]
    years: Array
    treated: Array | None
    name: str


@dataclass(frozen=True, eq=False)
class Traffic:
    """Speeds that sensors on roads measured.

    Attributes
    ----------
    speed : array of shape (times, sensors)
        Miles per hour, every five minutes.
    sensors : int array of shape (sensors,)
        Ids of the columns.
    adjacency : array of shape (sensors, sensors)
        How near two sensors are on the road, 0 to 1.
    """

    speed: Array
    sensors: Array
    adjacency: Array


def load_panel(name: str, *, source: str | os.PathLike[str] | None = None) -> Panel:
    """A panel that is at hand.

    Parameters
    ----------
    name : "smoking" or "basque"
        Cigarette packs sold per head in 39 states, of which California (row 0) raised
        its tax in 1989; or product per head of Spain (row 0) and 17 regions.
    source : path, optional
        The NPZ file; by default ``california_smoking.npz`` or ``basque_gdp.npz`` in the
        folder that the environment variable ``NCARL_DATA`` names, or in the cache
        folder. It cannot be downloaded from here.

    Raises
    ------
    DataNotFoundError
        If there is no such file; the text says where the data come from.

    Examples
    --------
    >>> from ncarl.datasets import available, load_panel
    >>> if available()["smoking"]:
    ...     before = load_panel("smoking").outcome[:, :19]
    """
    if name not in PANELS:
        raise ValueError(f"name must be one of {', '.join(PANELS)}, got {name!r}")
    path = locate(name, source)
    arrays = read_arrays(
        path,
        {"outcome": (NUMBER, 2), "year": (WHOLE, 1)},
        {"treatment": (f"{WHOLE}b", 2), "unit": (TEXT, 1)},
    )
    outcome = arrays["outcome"].astype(np.float64)
    years = arrays["year"].astype(np.int64)
    refuse(path, len(years) != outcome.shape[1], "a year for each column", len(years))
    treatment = arrays.get("treatment")
    if treatment is not None:
        odd = treatment.shape != outcome.shape or not np.isin(treatment, (0, 1)).all()
        refuse(path, odd, "treatment of 0 and 1, as large as outcome", treatment.shape)
        treatment = treatment.astype(bool)
    units = _units(path, name, arrays.get("unit"), len(outcome))
    return Panel(outcome, units, years, treatment, name)


def load_traffic(*, source: str | os.PathLike[str] | None = None) -> Traffic:
    """One week of speeds on roads of Los Angeles, if it is at hand.

    Parameters
    ----------
    source : path, optional
        The NPZ file; by default ``losloop_speed.npz`` in the folder that the
        environment variable ``NCARL_DATA`` names, or in the cache folder. It cannot be
        downloaded from here.

    Raises
    ------
    DataNotFoundError
        If there is no such file; the text says where the data come from.

    Examples
    --------
    >>> from ncarl.datasets import available, load_traffic
    >>> if available()["traffic"]:
    ...     X = load_traffic().speed
    """
    path = locate("traffic", source)
    arrays = read_arrays(
        path, {"speed": (NUMBER, 2), "sensor": (WHOLE, 1), "adjacency": (NUMBER, 2)}
    )
    shapes = {name: array.shape for name, array in arrays.items()}
    n = len(arrays["sensor"])
    odd = len(arrays["speed"]) != n or arrays["adjacency"].shape != (n, n)
    refuse(path, odd, "one row of speed and adjacency for each sensor", shapes)
    return Traffic(
        # The file has sensors in rows; a matrix to complete has them in columns.
        speed=arrays["speed"].T.astype(np.float64, order="C"),
        sensors=arrays["sensor"].astype(np.int64),
        adjacency=arrays["adjacency"].astype(np.float64),
    )


def _units(path: Path, name: str, stored: Array | None, count: int) -> tuple[str, ...]:
    """Names of the units: those of the file, or the first one's and numbers."""
    if stored is not None:
        refuse(path, len(stored) != count, f"{count} names of units", len(stored))
        return tuple(str(unit) for unit in stored)
    first, others = PANELS[name]
    return (first, *(f"{others} {number}" for number in range(1, count)))
