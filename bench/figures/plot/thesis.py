"""What the pages of the thesis of FPFS have in common. Error bars and ± are confidence intervals for 95 %."""

import math

import series
import style
from series import human
from style import plt

# Student's t for 95 %, by the number of runs.
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
NORMAL = 1.96


def half_width(point):
    """Of the interval of the mean."""
    return T95.get(point.runs, NORMAL) * point.deviation / math.sqrt(point.runs)


def points(ours, name):
    return [point._replace(deviation=half_width(point)) for point in ours.points(name)]


def panels(ours, names, curves, x_label, log_x=False):
    """A panel for each operation, with a curve for each (label, name of a series made of the operation)."""
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.9 * columns, 3.2 * rows), squeeze=False)
    flat = [axis for row in axes for axis in row]
    for axis in flat[len(names):]:
        axis.set_visible(False)
    for axis, name in zip(flat, names):
        for (label, series_of), colour, marker in zip(curves, style.COLOURS, style.MARKERS):
            found = points(ours, series_of(name))
            if found:
                style.ours(axis, found, label, colour, marker)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(x_label)
        axis.set_ylim(bottom=0)
        if log_x:
            axis.set_xscale("log")
        style.plain_axis(axis)
    flat[0].set_ylabel("operations a second")
    figure.tight_layout()
    style.legend_below(figure, flat[0], len(curves))
    return figure


HEADS = ("what", "x", "here", "± 95 %", "by CPU second of the servers", "busiest server", "the thesis's")


def row(ours, paper, name, x, papers=None):
    """One line: a series at a place, and the thesis's number, by default of the same name and place."""
    point = ours.point(name, x)
    if point is None:
        return None
    cpu, busiest = ours.point(f"{name}: by CPU", x), ours.point(f"{name}: busiest server", x)
    theirs = paper.point(papers or name, x)
    return [
        name, str(x), human(point.value), human(half_width(point)) if point.runs > 1 else "one run",
        human(cpu.value) if cpu else "too short", f"{busiest.value:.0f} %" if busiest else "too short",
        human(theirs.value) if theirs else "not printed",
    ]


def table(ours, paper, names):
    rows = [row(ours, paper, name, point.x) for name in names for point in ours.points(name)]
    return HEADS, [line for line in rows if line]


def servers(ours, prefix):
    """The numbers of servers that were measured, for series that end in them."""
    start = f"{prefix}, servers "
    found = [name[len(start):] for name in ours.series() if name.startswith(start) and ":" not in name]
    return sorted({int(number) for number in found})


def ratio(ours, name, base, x, base_x=None):
    """Of two series at the same place, or of one at two places."""
    one, other = ours.point(name, x), ours.point(base, x if base_x is None else base_x)
    return one.value / other.value if one and other else float("nan")


def said(ratio):
    """A ratio in a sentence. Of phases between two ticks of the kernel's clock there is none."""
    return f"{ratio:.3g}" if math.isfinite(ratio) else "(too short to measure)"


def last(ours, name):
    """The last place of a series."""
    return ours.points(name)[-1].x


ONE_MACHINE = (
    "The thesis has a machine for each server and others for the clients, over Gigabit Ethernet. Here all processes share the processors of "
    "one machine and talk over Unix sockets, so compare ratios, and rates by processor time, rather than rates."
)
NO_PARTS = "Directories with parts are not measured yet: only the configuration without distribution is."
