"""Figures on a screen, for those who have one."""

from __future__ import annotations

from matplotlib.figure import Figure


def show(*figures: Figure) -> None:
    """Show figures in windows, or below the cell of a notebook.

    The functions of `ncarl.plots` leave pyplot alone; this hands their figures over to
    it.

    Parameters
    ----------
    *figures : Figure
        What to show.

    Examples
    --------
    >>> from ncarl import plots
    >>> figure = plots.spectrum([8.0, 1.0, 1.0])
    >>> plots.show(figure)  # doctest: +SKIP
    """
    from matplotlib import pyplot as plt

    for figure in figures:
        manager = plt.figure(figsize=figure.get_size_inches()).canvas.manager
        assert manager is not None
        manager.canvas.figure = figure
        figure.set_canvas(manager.canvas)
    plt.show()
