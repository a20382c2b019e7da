"""Reproduce the tables and figures of the paper (``ncarl reproduce``).

Begin with `plan` (what is run: `load_plan` reads ``experiments/*.toml``), then read
`run` (`run_plans` runs the fits and stores them), `summary` (means over seeds, result
files), `theory` (theorems checked numerically), `verdicts` (claims of the paper),
`figures` and `report` (`publish` writes everything).
"""
