"""The server's journal."""

import series
import style
from series import human
from style import plt

TITLE = "Figure 3a: what the server's journal costs"
SHOWS = (
    "Slowdown of the slowest of 1 to 20 clients that create one file after the other, without a journal, and with a journal in the object store of "
    "which 1, 10 or 40 segments are on their way at a time; to the right, segments of other lengths."
)
POLICIES = {"no journal": "ramdisk", "dispatch 1, 10, 40": "posix", "answers that wait": "posix-durable"}
CURVES = ("no journal", "dispatch 1", "dispatch 10", "dispatch 40")
WAITING = ("dispatch 1, answered when durable", "dispatch 40, answered when durable")


def base(ours):
    """One client without a journal, us a create."""
    return ours.point("no journal", 1).value


def plot(ours, paper):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), gridspec_kw={"width_ratios": [2.1, 1], "wspace": 0.25})
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
    right.set_xticks(places, [f"{int(point.x) / 1024:g} MiB" if int(point.x) >= 1024 else f"{point.x} KiB" for point in points])
    right.set_xlabel(f"segment, with {ours.points('segment, clients')[0].value:.0f} clients")
    right.grid(axis="x", visible=False)
    style.ratio_axis(right)
    style.legend_below(figure, left, 3)
    return figure


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
    return (
        f"With {most} clients a journal costs {human(ratio['dispatch 1'])} times the time without one with one segment on its way, "
        f"{human(ratio['dispatch 10'])} times with 10 and {human(ratio['dispatch 40'])} times with 40; the paper found 10 to be the worst. Here nobody waits for the journal "
        f"unless asked to; if each answer waits until it is durable, it is {waiting}, and one client alone waits {human(ours.point(WAITING[0], 1).value / 1000)} ms for each create. Clients share this machine with the server, "
        "so the curve without a journal rises with their number from the start, where the paper's server has processors to spare up to 5 clients."
    )
