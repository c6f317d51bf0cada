"""How every plot looks: ours is solid, the paper is dashed in the same colour."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the back end comes first)
from matplotlib.ticker import FuncFormatter  # noqa: E402

import series  # noqa: E402

# Told apart by the colour-blind too (Okabe and Ito).
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#666666",
)
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
MARKERS = "osD^vP"

plt.rcParams.update(
    {
        "figure.dpi": 110,
        "savefig.bbox": "tight",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.7,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "chiton",
    }
)


def times(value, _=None):
    """A ratio on an axis: 0.1×, 3×, 1,000×."""
    if value >= 1000:
        return f"{value:,.0f}×"
    return f"{value:g}×"


def ratio_axis(axis, log=False):
    if log:
        axis.set_yscale("log")
    axis.yaxis.set_major_formatter(FuncFormatter(times))


def plain_axis(axis):
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def ours(axis, points, label, colour, marker="o", x=None):
    axis.errorbar(
        x or series.xs(points), series.values(points), yerr=series.deviations(points), label=label,
        color=colour, marker=marker, markersize=5, linewidth=1.8, capsize=3,
    )


def papers(axis, points, label, colour, marker="o", x=None):
    if points:
        axis.errorbar(
            x or series.xs(points), series.values(points), yerr=series.deviations(points), label=label, color=colour,
            marker=marker, markersize=5, markerfacecolor="white", linewidth=1.2, linestyle="--", capsize=3, alpha=0.75,
        )


def bars(axis, at, points, width, label, **how):
    """Bars with their values on top; a point that is None is left out and says so."""
    for n, (place, point) in enumerate(zip(at, points)):
        if point is None:
            axis.annotate("not\nmeasured", (place, axis.get_ylim()[0]), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=7, color=GREY)
            continue
        axis.bar(
            place, point.value, width, yerr=point.deviation or None, label=label if n == first(points) else None,
            capsize=2, error_kw={"elinewidth": 1}, **how,
        )
        axis.annotate(
            f"{series.human(point.value)}", (place, point.value + point.deviation), xytext=(0, 2), textcoords="offset points",
            ha="center", fontsize=7.5,
        )


def first(points):
    return next((n for n, point in enumerate(points) if point is not None), 0)


def legend_below(figure, axis, columns=2, lift=0.0):
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, lift), ncol=columns)


def clients_axis(axis, points):
    axis.set_xlabel("clients, each in a directory of its own")
    axis.set_xticks(series.xs(points))
    axis.set_xlim(left=0)
