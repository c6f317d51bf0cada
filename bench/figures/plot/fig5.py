"""What mechanisms and systems cost."""

import statistics

import style
from series import Point, human
from style import plt

TITLE = "Figure 5: what each mechanism costs"
SHOWS = (
    "Time that each mechanism adds for one client that creates files in one directory, as a multiple of appending to the client's "
    "journal in memory; and the time of the compositions that make up whole systems."
)
POLICIES = {
    "append_client_journal, ramdisk-decoupled": "ramdisk-decoupled",
    "volatile_apply, batchfs": "batchfs",
    "nonvolatile_apply": "offline",
    "rpcs, ramdisk": "ramdisk",
    "stream, posix": "posix",
    "local_persist, deltafs": "deltafs",
    "global_persist, weak-global": "weak-global",
}

# What is drawn: the composition with it, and the one without.
CONSISTENCY = {
    "append_client_journal": ("append", None),
    "volatile_apply": ("merge", None),
    "nonvolatile_apply": ("nonvolatile_apply", None),
    "rpcs": ("ramdisk", None),
}
DURABILITY = {
    "stream": ("posix", "ramdisk"),
    "local_persist": ("append + local_persist", "append"),
    "global_persist": ("append + global_persist", "append"),
}
SYSTEMS = {
    "posix": ("posix",),
    "batchfs": ("append + local_persist, before the merge", "merge"),
    "deltafs": ("append + local_persist",),
    "ramdisk": ("ramdisk",),
    "ramdisk-decoupled": ("append",),
    "weak-global": ("append + global_persist", "merge of what is in the object store"),
}


def seconds(ours, x):
    return [value for value, _ in ours.values["time"].get(x, [])]


def base(ours):
    return statistics.fmean(seconds(ours, "append"))


def made(x, values, base):
    """A point from each run's own value, as multiples of the base; None without values."""
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else 0
    return Point(x, statistics.fmean(values) / base, spread / base, len(values), "x")


def mechanism(ours, whole, without):
    values = seconds(ours, whole)
    if without:
        values = [more - less for more, less in zip(values, seconds(ours, without))]
    return made(whole, values, base(ours))


def system(ours, parts):
    return made("+".join(parts), [sum(run) for run in zip(*(seconds(ours, part) for part in parts))], base(ours))


def measured(ours, names):
    return {name: mechanism(ours, *how) for name, how in names.items()}


def plot(ours, paper):
    panels = (
        ("consistency", measured(ours, CONSISTENCY), "mechanism"),
        ("durability (what it adds)", measured(ours, DURABILITY), "mechanism"),
        ("systems", {name: system(ours, parts) for name, parts in SYSTEMS.items()}, "system"),
    )
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.8), sharey=True, gridspec_kw={"width_ratios": [4, 3, 6], "wspace": 0.06})
    for axis, (title, points, kind) in zip(axes, panels):
        axis.set_title(title, fontsize=11)
        axis.grid(axis="x", visible=False)
        axis.set_yscale("log")
        axis.set_ylim(0.01, 300)
        for n, (name, point) in enumerate(points.items()):
            bar(axis, n - 0.2, point, style.BLUE, "here", None)
            bar(axis, n + 0.2, paper.point(kind, name), "white", "paper", "////")
        axis.set_xticks(range(len(points)), [name.replace("_", "\n").replace("-", "\n") for name in points], fontsize=8.5)
        axis.yaxis.set_major_formatter(style.FuncFormatter(style.times))
    axes[0].set_ylabel("time, of append_client_journal (log)")
    handles = [plt.Rectangle((0, 0), 1, 1, color=style.BLUE), plt.Rectangle((0, 0), 1, 1, fill=False, hatch="////", edgecolor=style.GREY)]
    figure.legend(handles, ["here", "paper"], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=2)
    return figure


def bar(axis, at, point, colour, _label, hatch):
    """One bar from the axis' foot; what is not above the noise is said in words."""
    foot = axis.get_ylim()[0]
    if point is None:
        words = "not measured" if not hatch else "not in the paper"
    elif point.value <= foot:
        words = "within the noise"
    else:
        edge = style.GREY if hatch else colour
        low = min(point.deviation, point.value - foot)
        axis.bar(at, point.value, 0.38, color=colour, edgecolor=edge, hatch=hatch, linewidth=0.8, yerr=[[low], [point.deviation]], capsize=2, error_kw={"elinewidth": 1})
        axis.annotate(human(point.value), (at, point.value + point.deviation), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=7.5)
        return
    axis.annotate(words, (at, foot), xytext=(0, 4), textcoords="offset points", ha="center", rotation=90, fontsize=7.5, color=style.GREY)


def baseline(ours, _paper):
    count = ours.point("count", "creates").value
    spread = statistics.stdev(seconds(ours, "append")) if len(seconds(ours, "append")) > 1 else 0
    rates = [
        f"{name} {human(count / statistics.fmean(seconds(ours, x)))}"
        for name, x in (("append_client_journal", "append"), ("volatile_apply", "merge"), ("rpcs without a journal", "ramdisk"))
    ]
    return (
        f"append_client_journal of {human(count)} creates: {human(base(ours))} ± {human(spread)} s. Creates or events a second: "
        + ", ".join(rates) + ". The paper's: append_client_journal 11,100, volatile_apply 86,000 to 89,000."
    )


def says(ours, paper):
    bytes_each = ours.point("journal", "bytes of a create").value
    merge, rpcs = mechanism(ours, "merge", None), mechanism(ours, "ramdisk", None)
    offline = mechanism(ours, "nonvolatile_apply", None)
    missing = " nonvolatile_apply is not measured here." if offline is None else (
        f" nonvolatile_apply takes {human(offline.value / merge.value)} times as long as volatile_apply (paper: 83), with opening and closing the file system; it is the same merge, by a process that serves nobody."
    )
    return (
        f"A create takes {human(bytes_each)} bytes of journal (paper: about 2,500). Against appending, rpcs take {human(rpcs.value)} times as long (paper 17.9) and volatile_apply "
        f"{human(merge.value)} times (paper 0.93): a merge is validated here, and durable when it is over, which the paper's is not. Local and global persist write "
        f"while the job goes on, so what they add is what is left to write at its end; here both stores are on one disk.{missing}"
    )
