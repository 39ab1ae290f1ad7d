"""Pictures from findings: one PNG for each figure, without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from eddies.observe.claims import Figure, Panel

__all__ = ["draw"]

_MARKERS = "osv^Dx*P"
_INCHES = (6.4, 4.4)  # of one panel
_MANY_POINTS = 40  # a line of more has no marks
_MANY_LETTERS = 60  # names on the x axis with more in all are written slantwise


def draw(figure: Figure, path: Path) -> None:
    """Write `figure` to `path`, its panels side by side."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    n_panels = len(figure.panels)
    size = (_INCHES[0] * n_panels, _INCHES[1])
    canvas, axes = pyplot.subplots(1, n_panels, figsize=size, squeeze=False, layout="constrained")
    canvas.suptitle(figure.title)
    for panel, axis in zip(figure.panels, axes[0], strict=True):
        _draw_panel(panel, axis)
    canvas.savefig(path, dpi=110)
    pyplot.close(canvas)


# Axes come from matplotlib, which is not typed.
def _draw_panel(panel: Panel, axis: Any) -> None:
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    if panel.kind == "bars":
        _draw_bars(panel, axis)
    else:
        for number, series in enumerate(panel.series):
            plain = series.dashed or len(series.x) > _MANY_POINTS
            marker = None if plain else _MARKERS[number % len(_MARKERS)]
            style = "--" if series.dashed else "-"
            axis.plot(series.x, series.y, style, marker=marker, markersize=4, label=series.name)
    for style, (text, height) in zip((":", "--"), (panel.marks or {}).items(), strict=False):
        axis.axhline(height, color="0.3", linestyle=style, linewidth=1.2, label=text)
    if panel.log_y:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.grid(True, axis="y", alpha=0.3)
    if panel.kind == "lines":
        axis.legend(fontsize=8)
    elif len(panel.series) > 1 or panel.marks:
        # Beside the bars, which leave no free corner.
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_bars(panel: Panel, axis: Any) -> None:
    """Groups of bars, one a name on the x axis; the value is written on top where there is room."""
    names = list(panel.series[0].x)
    width = 0.8 / len(panel.series)
    for number, series in enumerate(panel.series):
        places = [i + (number - (len(panel.series) - 1) / 2) * width for i in range(len(names))]
        bars = axis.bar(places, series.y, width, label=series.name)
        if len(names) * len(panel.series) <= 16:
            axis.bar_label(bars, fmt=_number, fontsize=7)
    is_long = sum(len(str(name)) for name in names) > _MANY_LETTERS
    slant = {"rotation": 25, "ha": "right"} if is_long else {}
    axis.set_xticks(range(len(names)), [str(name) for name in names], fontsize=8, **slant)
    axis.margins(y=0.15)


def _number(value: float) -> str:
    """Three digits, without exponents.

    >>> _number(5030.2), _number(1.0912)
    ('5,030', '1.09')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
