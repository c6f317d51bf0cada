"""Create, save, persist and apply, by the number of files."""

import style
from series import human
from style import plt

TITLE = "Figure 13 of the draft: create, save, persist and apply"
SHOWS = (
    "Time of one client that creates more and more files in one directory, as a multiple of creating them in its journal in memory: with the journal saved on the local disk, persisted in the object store, applied to the server's "
    "store in memory (v_apply) or by a tool while no server runs (apply), and by rpcs. Right, creates a second by how many entries the directory has by then."
)
POLICIES = {"create, v_apply": "ramdisk-decoupled", "save": "deltafs", "persist, apply": "offline", "rpcs": "posix"}
CURVES = ("create + save", "create + persist", "create + v_apply", "create + persist + apply", "rpcs")
# Where the caption's ratios are.
PAPER_FILES = 100_000
RATES = ("rate of create", "rate of create, processor time", "rate of rpcs")
# Fewer entries take so little time that their rate is noise.
FEWEST = 1_000


def ratios(ours, name):
    """Of create, at each number of files."""
    return [point._replace(value=point.value / base.value, deviation=point.deviation / base.value) for point, base in zip(ours.points(name), ours.points("create"))]


def plot(ours, paper):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.8), gridspec_kw={"width_ratios": [1.2, 1], "wspace": 0.3})
    curves = list(zip(CURVES, style.COLOURS, style.MARKERS))
    for name, colour, marker in curves:
        style.ours(left, ratios(ours, name), name, colour, marker)
    for name, colour, marker in curves:
        there = paper.point("of create", name)
        if there:
            left.plot([PAPER_FILES], [there.value], marker=marker, color=colour, markerfacecolor="white", linestyle="none", markersize=8, markeredgewidth=1.4, label=f"{name} (draft)")
    left.axhline(1, color=style.GREY, linewidth=0.8)
    left.set_xscale("log")
    style.ratio_axis(left, log=True)
    left.set_xlabel("files (log)")
    left.set_ylabel("time, of create (log)")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    for name, colour, marker in zip(RATES, (style.SKY, style.GREY, style.PURPLE), "PXv"):
        style.ours(right, [point for point in ours.points(name) if float(point.x) >= 100], name.removeprefix("rate of "), colour, marker)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("entries of the directory (log)")
    right.set_ylabel("creates/s since the point before (log)")
    style.plain_axis(right)
    low, high = right.get_ylim()
    right.set_ylim(low / 2, high * 2)
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=1)
    return figure


def baseline(ours, _paper):
    return "; ".join(
        f"create: {human(float(point.x))} files in {human(point.value)} ± {human(point.deviation)} s, {human(float(point.x) / point.value)} creates/s" for point in ours.points("create")
    ) + f" ({ours.runs()} runs)."


def flatness(ours, name):
    """The rate at the end against that of the first thousand entries or so."""
    points = [point for point in ours.points(name) if float(point.x) >= FEWEST] or ours.points(name)
    return points[0], points[-1], points[-1].value / points[0].value


def says(ours, paper):
    at = ours.points("create")[-1].x
    if ours.point("create", PAPER_FILES):
        at = str(PAPER_FILES)
    here = {name: ours.point(name, at).value / ours.point("create", at).value for name in CURVES}
    told = ", ".join(
        f"{name} {human(here[name])} times" + (f" (draft: {paper.point('of create', name).value:g})" if paper.point("of create", name) else "") for name in CURVES
    )
    flat = "; ".join(
        f"{name.removeprefix('rate of ')} from {human(first.value)}/s at {human(float(first.x))} entries to {human(last.value)}/s at {human(float(last.x))}, {human(ratio)} times"
        for name in RATES for first, last, ratio in (flatness(ours, name),)
    )
    return (
        f"With {human(float(at))} files, against create: {told}. The draft's persist comes after save, here it goes to the object store alone. Both write while the client works; of few files the fixed cost of one write to the disk, "
        "and of apply that of opening and closing a file system, is most of the time, so those curves fall. The draft's apply pulls and pushes an object for every event; here it is one merge. "
        f"Creates a second as the directory grows (by time on the clock, and of the processor time that the client's thread had): {flat}. Nothing is scanned, neither by the client nor by the server."
    )
