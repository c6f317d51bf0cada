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


def empty_panels(names):
    """At most three side by side."""
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.9 * columns, 3.2 * rows), squeeze=False)
    flat = [axis for row in axes for axis in row]
    for axis in flat[len(names):]:
        axis.set_visible(False)
    return figure, flat


def limit(axis, drawn):
    """Error bars of two runs are long: they may leave the axis."""
    if drawn:
        most = max(point.value for point in drawn)
        axis.set_ylim(0, 1.05 * min(2 * most, max(point.value + point.deviation for point in drawn)))


def few_ticks(axis, drawn):
    """At the places that were measured, if they are few."""
    places = sorted({float(point.x) for point in drawn})
    if len(places) <= 6:
        axis.set_xticks(places)
        axis.xaxis.set_major_formatter(style.FuncFormatter(lambda value, _: f"{value:,.10g}"))


def panels(ours, names, curves, x_label, log_x=False):
    """A panel for each operation, with a curve for each (label, name of a series made of the operation)."""
    figure, flat = empty_panels(names)
    for axis, name in zip(flat, names):
        for (label, series_of), colour, marker in zip(curves, style.COLOURS, style.MARKERS):
            found = points(ours, series_of(name))
            if found:
                style.ours(axis, found, label, colour, marker)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(x_label)
        drawn = [point for _, series_of in curves for point in points(ours, series_of(name))]
        limit(axis, drawn)
        if log_x:
            axis.set_xscale("log")
        else:
            few_ticks(axis, drawn)
        style.plain_axis(axis)
    flat[0].set_ylabel("operations a second")
    figure.tight_layout()
    style.legend_below(figure, flat[0], min(3, len(curves)))
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


def ratios(ours, name, base):
    """Of two series at each place, run by run."""
    rows = []
    for (series_name, run), values in ours.of_run.items():
        others = dict(ours.of_run.get((base, run), []))
        if series_name == name:
            rows += [dict(series=name, x=x, run=run, value=value / others[x], unit="x") for x, value in values if others.get(x)]
    return points(series.Data(rows), name)


def speedup_panels(ours, names, curves, x_label):
    """A panel for each operation, with a curve for each (label, series of the operation, series that it is divided by)."""
    figure, flat = empty_panels(names)
    for axis, name in zip(flat, names):
        axis.axhline(1, color=style.GREY, linewidth=1)
        for (label, series_of, base_of), colour, marker in zip(curves, style.COLOURS, style.MARKERS):
            found = ratios(ours, series_of(name), base_of(name))
            if found:
                style.ours(axis, found, label, colour, marker)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(x_label)
        drawn = [point for _, series_of, base_of in curves for point in ratios(ours, series_of(name), base_of(name))]
        limit(axis, drawn)
        few_ticks(axis, drawn)
        style.ratio_axis(axis)
    flat[0].set_ylabel("speed-up")
    figure.tight_layout()
    style.legend_below(figure, flat[0], min(3, len(curves)))
    return figure


COMPARED = HEADS[:-1] + ("rate by unsplit", "the thesis's")


def compared(ours, paper, names, unsplit_of):
    """As `table`, with the rate as a multiple of that of the unsplit directory (a series named by the function), run by run."""
    lines = []
    for name in names:
        relative = {point.x: point for point in ratios(ours, name, unsplit_of(name))}
        for point in ours.points(name):
            line = row(ours, paper, name, point.x)
            shown = f"{relative[point.x].value:.3g}" if point.x in relative and name != unsplit_of(name) else ""
            lines.append(line[:-1] + [shown, line[-1]])
    return COMPARED, lines


def unmeasured(name, point, heads):
    """A line for a number of the thesis with nothing beside it."""
    return [name, str(point.x), "not measured"] + [""] * (len(heads) - 4) + [human(point.value)]


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
PLATES = (
    "A cluster has eight plates here, however many servers, and a directory that is split has a part on each: so it is split on one server, too, where the thesis has nothing to "
    "distribute."
)
BORN_BEFORE = (
    "Files that a directory had before it was split stay on their plate here, and only their names move: to remove such a file takes two plates and a commit of each. "
    "The thesis moves the files."
)
UNSPLIT = "The directory is not split; figures 5.6 and 6.5 compare."
