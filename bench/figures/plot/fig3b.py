"""Interference under a strong policy."""

import statistics

import style
from series import human
from style import plt

TITLE = "Figure 3b: interference hurts"
SHOWS = (
    "Slowdown of the slowest of 1 to 20 clients, each in a directory of its own, under a strong policy: alone, and while one more client creates a tenth as many files "
    "in each of these directories. Each create is a lookup, a create and a close, as a mount does it."
)
POLICIES = {"all clients": "posix"}
CURVES = {"none": "no interference", "allow": "interference"}


def base(ours):
    """One client alone, s."""
    return ours.point("none", 1).value


def plot(ours, paper):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), gridspec_kw={"width_ratios": [2.2, 1], "wspace": 0.28})
    for (name, label), colour, marker in zip(CURVES.items(), style.COLOURS, style.MARKERS):
        style.ours(left, ours.over(name, base(ours)), label, colour, marker)
    style.ratio_axis(left)
    style.clients_axis(left, ours.points("none"))
    left.set_ylim(bottom=0)
    left.set_ylabel("time of the slowest client, of one alone")
    beside(right, per_client(ours, CURVES), paper, CURVES)
    style.legend_below(figure, left, 2)
    return figure


def per_client(ours, names, base_of=None):
    """For each series, its mean of interfered / not interfered over the numbers of clients, and the deviation of that."""
    made = {}
    for name in names:
        ratios = [
            ours.point(name, point.x).value / point.value for point in ours.points(base_of or next(iter(names)))
        ]
        made[name] = (statistics.fmean(ratios), statistics.stdev(ratios) if len(ratios) > 1 else 0)
    return made


def beside(axis, here, paper, names):
    """Bars of time with interference over time without, ours and the paper's."""
    import matplotlib.patches

    none = paper.point("interference", "none").value
    for n, (name, (mean, spread)) in enumerate(here.items()):
        axis.bar(n - 0.2, mean, 0.38, yerr=spread, color=style.COLOURS[n], capsize=2)
        axis.annotate(human(mean), (n - 0.2, mean + spread), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8)
        point = paper.point("interference", name.split(", ")[-1])
        axis.bar(n + 0.2, point.value / none, 0.38, color="white", edgecolor=style.GREY, hatch="////")
        axis.annotate(human(point.value / none), (n + 0.2, point.value / none), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8)
    axis.axhline(1, color=style.GREY, linewidth=0.8)
    axis.set_xticks(range(len(here)), [names[name].replace(" ", "\n", 1) for name in here], fontsize=8.5)
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("time, of no interference,\nmean over the numbers of clients")
    style.ratio_axis(axis)
    axis.legend(
        [matplotlib.patches.Patch(color=style.GREY), matplotlib.patches.Patch(facecolor="white", edgecolor=style.GREY, hatch="////")],
        ["here", "paper"], loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2,
    )


def baseline(ours, _paper):
    point, files = ours.point("none", 1), ours.point("files", "each client").value
    return (
        f"1 client alone: {human(files)} files in {human(point.value)} ± {human(point.deviation)} s, {human(files / point.value)} creates/s. "
        "The paper's: 513 creates/s."
    )


def says(ours, paper):
    mean, spread = per_client(ours, CURVES)["allow"]
    none, allow = paper.point("interference", "none"), paper.point("interference", "allow")
    return (
        f"With interference the slowest client takes {human(mean)} ± {human(spread)} times as long as without (paper: {human(allow.value / none.value)} times; its text gives slowdowns per "
        f"client of {allow.value} ± {allow.deviation} and {none.value} ± {none.deviation}, and no numbers for single points). Ten times as many files of the other client "
        "are created as in the paper's later experiment, so some of it is their own cost. A client here does not keep whole directories, so it sends its lookups with and without interference; "
        "what interference adds are recalls of leases."
    )
