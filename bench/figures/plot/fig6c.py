"""Syncs while a job works."""

import statistics

import style
from series import Point, human
from style import plt

TITLE = "Figure 6c: syncing a running job to the global namespace"
SHOWS = (
    "How much longer a decoupled job takes when what it did so far is merged every few seconds while it goes on. The job computes between two "
    "creates so long that it makes as many files a second as the paper's client did (11 thousand)."
)
POLICIES = {"without syncs": "sync-0s", "a sync every second (of the other intervals that line alone differs)": "sync-1s"}


def seconds(ours, series, x):
    return [value for value, _ in ours.values[series][x]]


def overheads(ours, series):
    """Per cent of the mean time without syncs, for each interval; 0 first."""
    base = statistics.fmean(seconds(ours, series, "0"))
    points = []
    for point in ours.points(series):
        points.append(Point(point.x, (point.value / base - 1) * 100, point.deviation / base * 100, point.runs, "%"))
    return points


def plot(ours, paper):
    figure, axis = plt.subplots(figsize=(7.2, 4.4))
    style.ours(axis, overheads(ours, "paced")[1:], "time of the job", style.BLUE)
    style.ours(axis, overheads(ours, "paced, processor time")[1:], "processor time of the job's thread", style.GREEN, "D")
    theirs = [point for point in paper.points("overhead") if float(point.x) > 0]
    style.papers(axis, theirs, "time of the job (paper, 1 million updates)", style.ORANGE, "s")
    axis.axhline(0, color=style.GREY, linewidth=0.8)
    axis.set_xlabel("interval between syncs, s")
    axis.set_ylabel("more than without syncs, %")
    axis.set_xlim(left=0)
    style.legend_below(figure, axis, 1)
    return figure


def baseline(ours, _paper):
    count = ours.point("updates", "paced").value
    point = ours.point("paced", "0")
    flat, many = ours.point("flat out", "0"), ours.point("updates", "flat out").value
    return (
        f"Without syncs: {human(count)} updates in {point.value:.2f} ± {point.deviation:.2f} s, {human(count / point.value)}/s; "
        f"flat out, without computing: {human(many / flat.value)} updates/s."
    )


def says(ours, paper):
    points = overheads(ours, "paced")
    every = {point.x: f"{point.value:.1f} ± {point.deviation:.1f} %" for point in points}
    told = ", ".join(f"every {x} s {text}" for x, text in every.items() if x != "0")
    flat = overheads(ours, "flat out")[-1]
    spread = max(points[0].deviation, *(point.deviation for point in points[1:]))
    return (
        f"Here: {told} (paper: every second 9 %, every 10 s 2 %); differences below about {spread:.1f} % are the noise of these runs. "
        "The paper's client stands still while it forks; here the journal is cut and the job goes on, and what a sync costs is the processor "
        f"that merging takes. A job that only creates, as fast as it can, and is merged every {flat.x} s competes with its own merges and with the server "
        f"for {'' if flat.value < 0 else 'the same '}processors: {flat.value:+.0f} % time."
    )
