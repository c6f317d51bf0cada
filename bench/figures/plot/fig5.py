"""What mechanisms and systems cost."""

import statistics

import style
from series import Point, human
from style import plt

TITLE = "Figure 5: what each mechanism costs"
SHOWS = (
    "Time that each mechanism adds for one client that creates files in one directory, as a multiple of appending to the client's "
    "journal in memory; and the time of the compositions that make up whole systems. Below, what the paper's draft announces: how long one event takes in each mechanism, and rpcs by "
    "where the server's journal is kept."
)
POLICIES = {
    "append_client_journal, ramdisk-decoupled": "ramdisk-decoupled",
    "volatile_apply, batchfs": "batchfs",
    "nonvolatile_apply": "offline",
    "rpcs, ramdisk": "ramdisk",
    "stream, posix": "posix",
    "answered when durable": "posix-durable",
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

# One event, by mechanism.
EVENTS = (
    "append_client_journal", "volatile_apply", "nonvolatile_apply", "local_persist", "global_persist", "rpcs", "rpcs + stream",
    "rpcs + stream, answered when durable",
)
# What each bar of the journalling overhead is: a time of all creates, or the median of single ones.
JOURNALS = {
    "off": ("time", "ramdisk"),
    "in memory": ("time", "posix, journal in memory"),
    "object\nstore": ("time", "posix"),
    "in memory,\nwaited for": ("p50", "rpcs + stream in memory, answered when durable"),
    "object store,\nwaited for": ("p50", "rpcs + stream, answered when durable"),
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
    figure = plt.figure(figsize=(12.5, 10.2))
    grid = figure.add_gridspec(2, 13, height_ratios=[1, 0.9], hspace=0.42, wspace=0.3)
    first = None
    for (title, points, kind), columns in zip(panels, (slice(0, 4), slice(4, 7), slice(7, 13))):
        axis = figure.add_subplot(grid[0, columns], sharey=first)
        axis.set_title(title, fontsize=11)
        axis.grid(axis="x", visible=False)
        axis.set_yscale("log")
        axis.set_ylim(0.01, 300)
        axis.set_xlim(-0.55, len(points) - 0.45)
        for n, (name, point) in enumerate(points.items()):
            bar(axis, n - 0.2, point, style.BLUE, "here", None)
            bar(axis, n + 0.2, paper.point(kind, name), "white", "paper", "////")
        axis.set_xticks(range(len(points)), [name.replace("_", "\n").replace("-", "\n") for name in points], fontsize=8.5)
        axis.yaxis.set_major_formatter(style.FuncFormatter(style.times))
        if first is None:
            axis.set_ylabel("time, of append_client_journal (log)")
            first = axis
        else:
            axis.tick_params(labelleft=False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=style.BLUE), plt.Rectangle((0, 0), 1, 1, fill=False, hatch="////", edgecolor=style.GREY)]
    figure.legend(handles, ["here", "paper"], loc="center", bbox_to_anchor=(0.5, 0.475), ncol=2)
    events(figure.add_subplot(grid[1, :8]), ours)
    journals(figure.add_subplot(grid[1, 9:]), ours)
    return figure


def events(axis, ours):
    """p50 and p99 of one event."""
    axis.set_yscale("log")
    for series, at, colour in (("p50", -0.2, style.BLUE), ("p99", 0.2, style.ORANGE)):
        style.bars(axis, [n + at for n in range(len(EVENTS))], [ours.point(series, name) for name in EVENTS], 0.38, series, color=colour)
    labels = [name.replace(", answered when durable", ",\nanswered\nwhen\ndurable").replace("_", "\n").replace(" + ", "\n+ ") for name in EVENTS]
    axis.set_xticks(range(len(EVENTS)), labels, fontsize=8.5)
    axis.grid(axis="x", visible=False)
    axis.set_title("one event", fontsize=11)
    axis.set_ylabel("us (log)")
    style.plain_axis(axis)
    axis.legend(loc="upper left")


def journal(ours, series, x):
    """us of a create."""
    point = ours.point(series, x)
    if series == "p50" or point is None:
        return point
    each = ours.point("count", "creates").value / 1e6
    return point._replace(value=point.value / each, deviation=point.deviation / each)


def journals(axis, ours):
    """rpcs of one client, by where the journal is."""
    axis.set_yscale("log")
    points = [journal(ours, *where) for where in JOURNALS.values()]
    style.bars(axis, range(len(points)), points, 0.6, "rpcs", color=style.GREEN)
    axis.set_xticks(range(len(points)), list(JOURNALS), fontsize=8, rotation=30)
    axis.grid(axis="x", visible=False)
    axis.set_title("the server's journal", fontsize=11)
    axis.set_ylabel("us a create by rpcs (log)")
    style.plain_axis(axis)


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
    off, memory, store = (journal(ours, *JOURNALS[name]).value for name in ("off", "in memory", "object\nstore"))
    waits = [journal(ours, *JOURNALS[name]).value for name in ("in memory,\nwaited for", "object store,\nwaited for")]
    batch = human(ours.point("count", "events of a batch").value)
    missing = " nonvolatile_apply is not measured here." if offline is None else (
        f" nonvolatile_apply takes {human(offline.value / merge.value)} times as long as volatile_apply (paper: 83), with opening and closing the file system; it is the same merge, by a process that serves nobody."
    )
    return (
        f"A create takes {human(bytes_each)} bytes of journal (paper: about 2,500). Against appending, rpcs take {human(rpcs.value)} times as long (paper 17.9) and volatile_apply "
        f"{human(merge.value)} times (paper 0.93): a merge is validated here, and durable when it is over, which the paper's is not. Local and global persist write "
        f"while the job goes on, so what they add is what is left to write at its end; here both stores are on one disk.{missing} "
        f"One event: of mechanisms that work on a whole journal, its share of a batch of {batch}, and nonvolatile_apply opens and closes the file system for each batch. "
        f"A journal in memory makes rpcs take {human(memory / off)} times as long as none, and one in the object store {human(store / off)} times; nobody waits for it there. Who does waits "
        f"{human(waits[0])} us and {human(waits[1])} us (medians); the draft prints no numbers for either."
    )


def table(ours, paper):
    """The ratios that the paper's text names, and ours."""
    append = base(ours)
    part = lambda whole, without=None: mechanism(ours, whole, without)
    bytes_each = ours.point("journal", "bytes of a create").value
    ratios = {
        "rpcs, of append_client_journal": part("ramdisk").value,
        "rpcs, of volatile_apply": part("ramdisk").value / part("merge").value,
        "nonvolatile_apply, of append_client_journal": part("nonvolatile_apply").value,
        "volatile_apply + global_persist, of append_client_journal": part("merge").value + part("append + global_persist", "append").value,
        "stream (a journal less none), of append_client_journal": part("posix", "ramdisk").value,
        "global_persist less local_persist, of append_client_journal": part("append + global_persist", "append + local_persist").value,
    }
    # A difference of two times may be less than what these vary by.
    ours_of = lambda what, ratio: f"{human(ratio)} times" + (f" ({human(ratio * append)} s)" if what.endswith("of append_client_journal") else "") if ratio > 0 or "less" not in what else f"within the noise ({human(ratio)} times)"
    rows = [[what, f"{human(paper.point('text', what).value)} times", ours_of(what, ratio)] for what, ratio in ratios.items()]
    for what, value, unit in (("journal of a create", bytes_each, "bytes"), ("journal of a million creates", bytes_each * 1e6 / 2**30, "GiB")):
        rows.append([what, f"{human(paper.point('text', what).value)} {unit}", f"{human(value)} {unit}"])
    return ("what the paper's text says", "there", "here"), rows
