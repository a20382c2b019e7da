"""
Missing hours in a sensor log
=============================

Twelve stations record the temperature every half hour for three weeks. Stations
fail for hours at random times, and all of them for one night. Linear interpolation
misses the sunrise; `GapFiller` also uses the other stations and other days.
"""

# %%
# The log
# -------
# The log is simulated: a daily cycle, slow weather common to all stations, and
# variation specific to each station.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ncarl.panel import GapFiller

rng = np.random.default_rng(4)
times = pd.date_range("2024-05-01", periods=48 * 21, freq="30min")
hour = np.arange(len(times)) / 2.0


def drift(memory, columns=1):
    """Simulate an autoregressive process with this correlation time in hours."""
    steps, keep = rng.standard_normal((len(times), columns)), np.exp(-0.5 / memory)
    for k in range(1, len(times)):
        steps[k] = keep * steps[k - 1] + np.sqrt(1.0 - keep**2) * steps[k]
    return steps


day = np.maximum(np.sin(2 * np.pi * (hour[:, None] - 8.0) / 24.0), -0.4)
truth = 14.0 + 5.0 * day * rng.uniform(0.7, 1.3, 12) + 3.0 * drift(40.0)
truth = truth + 0.8 * drift(6.0, 12) + 0.1 * rng.standard_normal(truth.shape)

lost = np.zeros(truth.shape, dtype=bool)
for station in range(12):
    for first in rng.choice(len(times) - 16, 8, replace=False):
        lost[first : first + 16, station] = True
lost[480:492] = True  # six hours without any station
names = [f"station {k}" for k in range(1, 13)]
log = pd.DataFrame(truth, index=times, columns=names).mask(lost)

# %%
# Imputation
# ----------
# The period, 48 steps per day, is inferred from the times. Observed entries are kept.

filler = GapFiller().fit(log)
filled = filler.transform(log)
low, high = filler.predict_interval(log, level=0.9)
line = log.interpolate(limit_direction="both")

error = np.sqrt(np.mean((filled.to_numpy() - truth)[lost] ** 2))
linear_error = np.sqrt(np.mean((line.to_numpy() - truth)[lost] ** 2))
inside = ((low.to_numpy() <= truth) & (truth <= high.to_numpy()))[lost].mean()
print(f"{lost.sum()} entries imputed, steps per day: {filler.period_}")
print(f"RMSE {error:.2f} degrees, linear interpolation {linear_error:.2f}")
print(f"{inside:.1%} are in their 90% intervals")

# %%
# Two examples
# ------------
# On the left one station fails. On the right it fails for some hours, and soon after,
# from midnight on, all stations fail.

starts = np.flatnonzero(np.diff(lost[:, 4].astype(int)) == 1) + 1
alone = next(k for k in starts if 100 < k < 440)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for axis, first, title in (
    (axes[0], alone, "one station"),
    (axes[1], 480, "all stations"),
):
    part = slice(first - 40, first + 60)
    x, hole = times[part], lost[part, 4]
    axis.fill_between(x, low.iloc[part, 4], high.iloc[part, 4], where=hole,
                      color="#c6dbef", label="90% interval")  # fmt: skip
    axis.plot(x, np.where(hole, line.iloc[part, 4], np.nan), color="#999999", ls=":",
              label="linear interpolation")  # fmt: skip
    axis.plot(x, np.where(hole, filled.iloc[part, 4], np.nan), color="#2f6db3", lw=2,
              label="imputed")  # fmt: skip
    axis.plot(x, np.where(hole, truth[part, 4], np.nan), color="#d1495b", ls="--",
              label="true")  # fmt: skip
    axis.plot(x, log.iloc[part, 4], color="#333333", lw=1.2, label="observed")
    axis.set_title(f"missing for {title}", fontsize=11)
    axis.tick_params(axis="x", rotation=30)
axes[0].set_ylabel("degrees")
axes[0].legend(fontsize=8, frameon=False)
plt.show()
