"""The size of batches."""

import style
import thesis
from style import plt

TITLE = "Figure 6.4: operations in a batch"
SHOWS = "Creates, stats and unlinks of many clients in one directory of one server, by the operations in a batch, as multiples of one by one."
POLICIES = {"all": "posix"}
NAMES = ("create", "stat", "unlink")


def baseline(ours, _paper):
    return "One by one: " + ", ".join(f"{thesis.human(ours.point(name, 1).value)} {name}s/s" for name in NAMES) + "."


def plot(ours, _paper):
    figure, axis = plt.subplots(figsize=(6.8, 4.2))
    for name, colour, marker in zip(NAMES, style.COLOURS, style.MARKERS):
        base = ours.point(name, 1).value
        points = [point._replace(value=point.value / base, deviation=point.deviation / base) for point in thesis.points(ours, name)]
        style.ours(axis, points, name, colour, marker)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("operations in a batch")
    axis.set_ylabel("speed-up over one by one")
    style.ratio_axis(axis)
    style.legend_below(figure, axis, 3)
    return figure


def says(ours, _paper):
    gains = [thesis.ratio(ours, name, name, 1000, 1) for name in NAMES]
    return (
        "Batches of 1,000 are {:.3g} times as fast for creates, {:.3g} times for stats and {:.3g} times for unlinks (the thesis, without distribution: 1.34 to 1.73 with Ext4, "
        "and nearly all of it with 50). ".format(*gains)
        + "A stat of a batch is still a question for each name here, many of them under way at once. " + thesis.NO_PARTS + " So figure 6.5 is left out. " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    return thesis.table(ours, paper, NAMES)
