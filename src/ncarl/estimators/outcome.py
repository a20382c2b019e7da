"""What a fit has to tell besides its result."""

from __future__ import annotations

import warnings

from sklearn.exceptions import ConvergenceWarning

from ncarl.exceptions import NumericalWarning
from ncarl.fitting import Settings
from ncarl.loop import Result
from ncarl.solver import Iterate

#: From ``warn`` up to the line that called ``fit``.
LEVEL = 4


def report(name: str, settings: Settings, result: Result[Iterate]) -> None:
    """Warn of repairs on the way, and of a fit that did not settle."""
    jitter = max(result.history["jitter"], default=0.0)
    if jitter > 0.0:
        warnings.warn(
            f"near-singular blocks were factorised with up to {jitter:.1e} of "
            "their diagonal added; a larger delta, or gamma, avoids that",
            NumericalWarning,
            stacklevel=LEVEL,
        )
    steps = result.last.step
    if settings.tol > 0.0 and not result.converged and steps >= settings.max_iter:
        warnings.warn(
            f"{name} did not settle in max_iter={settings.max_iter} steps (change "
            f"{result.last.change:.1e}, tol {settings.tol:.1e}); the last step is "
            "kept. Raise max_iter or tol, or set tol=0 to run a fixed number of steps.",
            ConvergenceWarning,
            stacklevel=LEVEL,
        )
