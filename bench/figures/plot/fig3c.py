"""Requests over time."""

import statistics

import style
from series import human
from style import plt

TITLE = "Figure 3c: requests over time"
SHOWS = (
    "What one client creates a second, and the lookups and creates that the server answers, over time: alone, and with another client that creates in the same "
    "directory from the dashed line on."
)
POLICIES = {"both clients": "posix"}
PANELS = ("alone", "interfered with")
CURVES = {
    "the client's creates": style.BLUE,
    "lookups at the server": style.ORANGE,
    "creates at the server": style.GREEN,
}


def begins(ours):
    return ours.point("interference", "begins").value


def plot(ours, paper):
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), sharey=True, gridspec_kw={"wspace": 0.06})
    for axis, what in zip(axes, PANELS):
        axis.set_title(what, fontsize=11)
        for name, colour in CURVES.items():
            points = ours.one_run(f"{name}, {what}")
            dashed = name == "lookups at the server"
            axis.plot(*zip(*points), label=name, color=colour, linewidth=1.6, linestyle=(0, (3, 2)) if dashed else "-", zorder=3 if dashed else 2)
        axis.set_xlabel("time, s")
        style.plain_axis(axis)
    axes[0].set_ylim(bottom=0)
    axes[1].axvline(begins(ours), color=style.GREY, linestyle="--", linewidth=1)
    axes[0].set_ylabel("requests a second")
    style.legend_below(figure, axes[0], 3)
    return figure


def rates(ours, name):
    """Means before and after interference begins, of the first run."""
    points, at = ours.one_run(name), begins(ours)
    before, after = [v for t, v in points if t <= at], [v for t, v in points if t > at]
    return statistics.fmean(before), statistics.fmean(after)


def baseline(ours, _paper):
    alone = statistics.fmean(value for _, value in ours.one_run("the client's creates, alone"))
    return f"The client alone: {human(alone)} creates/s (first run, drawn here)."


def says(ours, paper):
    before, after = rates(ours, "the client's creates, interfered with")
    look_before, look_after = rates(ours, "lookups at the server, interfered with")
    return (
        f"When the other client begins, the first one's creates go from {human(before)} to {human(after)} a second, and all lookups from {human(look_before)} to {human(look_after)}, of both clients "
        "together. In the paper lookups begin with interference, because the client then may not keep the directory any more; here it asks for each new name from the start. "
        "The paper prints no numbers for this figure, so it has no curve here."
    )
