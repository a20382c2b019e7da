"""Helpers shared by the benchmark scripts: tables, JSON, versions, memory, data."""

from __future__ import annotations

import json
import os
import platform
import resource
from datetime import date
from pathlib import Path

import numpy as np


def print_table(lines):
    """Print a list of dicts as an aligned table."""
    names = list(lines[0])
    cells = [[_format_cell(line.get(name)) for name in names] for line in lines]
    widths = [
        max(len(name), *(len(row[k]) for row in cells)) for k, name in enumerate(names)
    ]
    for row in [names, *cells]:
        print(
            "  ".join(
                cell.rjust(width) for cell, width in zip(row, widths, strict=True)
            )
        )


def _format_cell(value):
    """Format one cell of a table."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def write_json(path, content):
    """Write the results as JSON if a path is given."""
    if path:
        Path(path).write_text(json.dumps(content, indent=1) + "\n")


def versions():
    """Date, software versions and processor of a run."""
    import numba
    import scipy
    import sklearn

    import ncarl

    return {
        "date": date.today().isoformat(),
        "ncarl": ncarl.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "numba": numba.__version__,
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }


def peak_gb():
    """Peak memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def data_folder():
    """Folder named by NCARL_DATA, or None if it does not exist."""
    folder = os.environ.get("NCARL_DATA")
    return Path(folder) if folder and Path(folder).is_dir() else None


def make_paper_like(m, n, rank, missing, noise=None, seed=0):
    """Generate uniform factors, noise on a fifth of the entries, and a random mask.

    Returns the clean matrix, the matrix with missing entries, and their mask.
    ``noise`` is a standard deviation; None means 1% of the mean.
    """
    rng = np.random.default_rng(seed)
    truth = rng.random((m, rank)) @ rng.random((rank, n))
    hidden = rng.random((m, n)) < missing
    sd = 0.01 * truth.mean() if noise is None else noise
    noisy = rng.random((m, n)) < 0.2
    X = truth + np.where(noisy, sd * rng.standard_normal((m, n)), 0.0)
    X[hidden] = np.nan
    return truth, X, hidden
