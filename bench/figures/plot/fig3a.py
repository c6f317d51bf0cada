"""The server's journal."""

import statistics

import style
from series import human
from style import plt

TITLE = "Figure 3a: what the server's journal costs"
SHOWS = (
    "Slowdown of the slowest of 1 to 20 clients that create one file after the other, without a journal, and with a journal in the object store of "
    "which 1, 10 or 40 segments are on their way at a time; to the right, segments of other lengths. Below, as in figure 4 of the paper's draft, what all clients together "
    "create a second, over time, with segments of three lengths (each run a line)."
)
POLICIES = {"no journal": "ramdisk", "dispatch 1, 10, 40; lengths of segments": "posix", "answers that wait": "posix-durable"}
CURVES = ("no journal", "dispatch 1", "dispatch 10", "dispatch 40")
LENGTHS = (64, 4096, 16384)
WAITING = ("dispatch 1, answered when durable", "dispatch 40, answered when durable")


def base(ours):
    """One client without a journal, us a create."""
    return ours.point("no journal", 1).value


def length(kib):
    """Of a segment, in words."""
    return f"{int(kib) / 1024:g} MiB" if int(kib) >= 1024 else f"{kib} KiB"


def plot(ours, paper):
    figure = plt.figure(figsize=(11, 8.6))
    grid = figure.add_gridspec(2, 6, height_ratios=[1.35, 1], hspace=0.75, wspace=0.35)
    left, right = figure.add_subplot(grid[0, :4]), figure.add_subplot(grid[0, 4:])
    for name, colour, marker in zip(CURVES, style.COLOURS, style.MARKERS):
        style.ours(left, ours.over(name, base(ours)), name, colour, marker)
    for name, colour, marker in zip(WAITING, (style.PURPLE, style.SKY), "vP"):
        style.ours(left, ours.over(name, base(ours)), name, colour, marker)
    style.papers(left, paper.points("no journal"), "no journal (paper)", style.BLUE)
    style.papers(left, paper.points("journal"), "journal (paper's data, 30 MB segments)", style.GREY, "s")
    style.ratio_axis(left, log=True)
    style.clients_axis(left, ours.points("no journal"))
    left.set_ylabel("time of the slowest client, of one\nwithout a journal (log)")
    points = ours.over("segment", base(ours))
    places = range(len(points))
    style.bars(right, places, points, 0.6, "dispatch 40", color=style.BLUE)
    right.set_xticks(places, [length(point.x) for point in points], fontsize=8.5)
    right.set_xlabel(f"segment, with {segment_clients(ours)} clients")
    right.grid(axis="x", visible=False)
    style.ratio_axis(right)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    over_time(figure, grid, ours)
    return figure


def segment_clients(ours):
    return f"{ours.points('segment, clients')[0].value:.0f}"


def over_time(figure, grid, ours):
    """One panel for each length of segments, with one scale."""
    first, highest = None, 0
    for n, (kib, colour) in enumerate(zip(LENGTHS, style.COLOURS)):
        axis = figure.add_subplot(grid[1, 2 * n : 2 * n + 2], sharey=first)
        for run in range(ours.runs()):
            points = ours.one_run(f"creates over time, {kib} KiB", run)
            if points:
                axis.plot(*zip(*points), color=colour, linewidth=1.4, alpha=1 if run == 0 else 0.45)
                axis.set_xlim(0, points[-1][0])
                highest = max(highest, *(rate for _, rate in points))
        axis.set_title(f"segments of {length(kib)}", fontsize=11)
        axis.set_xlabel("time, s")
        style.plain_axis(axis)
        if first is None:
            axis.set_ylabel(f"creates/s of {segment_clients(ours)} clients")
            first = axis
        else:
            axis.tick_params(labelleft=False)
    first.set_ylim(0, highest * 1.05)


def steadiness(ours, kib):
    """Mean of the creates a second over time of all runs, and their deviation as a share of it."""
    name = f"creates over time, {kib} KiB"
    rates = [value for run in range(ours.runs()) for _, value in ours.one_run(name, run)]
    mean = statistics.fmean(rates)
    return mean, statistics.stdev(rates) / mean


def baseline(ours, _paper):
    point = ours.point("no journal", 1)
    return (
        f"1 client without a journal: {human(point.value)} ± {human(point.deviation)} us a create, {human(1e6 / point.value)} creates/s. "
        "The paper's text says 654 creates/s, its published data 622."
    )


def says(ours, paper):
    most = ours.points("no journal")[-1].x
    ratio = {name: ours.point(name, most).value / ours.point("no journal", most).value for name in (*CURVES, *WAITING)}
    waiting = " and ".join(f"{human(ratio[name])} times with {name.split(',')[0]}" for name in WAITING)
    shortest, longest = ours.points("segment")[0], ours.points("segment")[-1]
    steady = ", ".join(
        f"{human(mean)}/s with {length(kib)}, varying by {spread * 100:.0f} %" for kib in LENGTHS for mean, spread in (steadiness(ours, kib),)
    )
    return (
        f"With {most} clients a journal costs {human(ratio['dispatch 1'])} times the time without one with one segment on its way, "
        f"{human(ratio['dispatch 10'])} times with 10 and {human(ratio['dispatch 40'])} times with 40; the paper found 10 to be the worst. Here nobody waits for the journal "
        f"unless asked to; if each answer waits until it is durable, it is {waiting}, and one client alone waits {human(ours.point(WAITING[0], 1).value / 1000)} ms for each create. Clients share this machine with the server, "
        "so the curve without a journal rises with their number from the start, where the paper's server has processors to spare up to 5 clients. "
        f"With segments of {length(shortest.x)} the same takes {human(shortest.value / longest.value)} times as long as with {length(longest.x)}; the draft's figure 4, which prints no numbers, has a faster server with larger "
        f"segments. Over time: {steady} from sample to sample."
    )
