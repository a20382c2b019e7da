"""
Treatment effects: a panel with one treated unit
================================================

Twenty cities record their road accidents for 24 years. In year 16 one of them, Harbor,
introduces a new rule. How many accidents would there have been without it? The
cities are simulated, so that the true effect is known: eight accidents fewer per year,
in full after three years.
"""

# %%
# The panel
# ---------
# Cities share a few trends (traffic grows, cars get safer), each to its own degree.

import numpy as np
import pandas as pd

from ncarl import plots
from ncarl.panel import counterfactual

rng = np.random.default_rng(7)
years = np.arange(2001, 2025)
t = np.linspace(0.0, 1.0, len(years))
courses = np.stack([t, t**2, np.sin(5.0 * t)])
loadings = rng.normal([-12.0, 4.0, 3.0], [6.0, 4.0, 2.0], (20, 3))
accidents = rng.normal(80.0, 12.0, (20, 1)) + loadings @ courses
accidents += rng.normal(0.0, 1.0, accidents.shape)
effect = np.clip((years - 2015) / 3.0, 0.0, 1.0) * -8.0
accidents[0] += effect

names = ["Harbor", *(f"city {k}" for k in range(2, 21))]
table = pd.DataFrame(accidents, index=names, columns=years)
print(table.iloc[:4, -6:].round(1))

# %%
# The counterfactual
# ------------------
# Harbor's years from 2016 on are held out and completed from its own past and from the
# other cities. Then every other city is held out in the same way: these
# errors determine the widths of the intervals.

result = counterfactual(table, treated="Harbor", start=2016)
print(result.summary())
plots.show(result.plot())

# %%
# Placebo test
# ------------
# The placebo test ranks the ratio of Harbor's errors after and before the start among
# those of untreated cities. With 19 of them the smallest possible p-value is 1/20.

test = result.placebo_test()
print(f"p = {test.p_value:.3f} among {len(test.placebos)} placebos")
plots.show(result.plot_placebos())

# %%
# The result as a frame
# ---------------------

frame = result.to_frame()
print(frame[frame["treated"]].drop(columns=["unit", "treated"]).round(1).to_string())
print(f"mean effect: true {effect[15:].mean():.1f}, found {result.average.effect:.1f}")
