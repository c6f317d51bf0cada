"""How much clients vary."""

import statistics

import style
from series import human
from style import plt

TITLE = "Figure 9 of the draft: variability when another client interferes"
SHOWS = (
    "Times of single clients, each of which creates in a directory of its own: alone, and while one more client is busy in all of these directories, as fast as it can until all are done. Left, by the number of "
    "clients, while the other one creates; right, with 7 clients by what the other one does: create, stat of all files, touch of all files, ls. Boxes are quartiles with the median, whiskers reach to the extremes, over all clients and runs."
)
POLICIES = {"all clients": "posix"}
KINDS = ("none", "create", "stat", "touch", "ls")
CLIENTS = "7"
COLOURS = dict(zip(KINDS, (style.GREY, style.ORANGE, style.BLUE, style.GREEN, style.PURPLE)))


def seconds(ours, kind, clients):
    return [value for value, _ in ours.values[kind][clients]]


def base(ours):
    """One client without interference, s."""
    return statistics.fmean(seconds(ours, "none", "1"))


def boxes(axis, ours, kind, at, clients, base, width, label=None):
    axis.boxplot(
        [[value / base for value in seconds(ours, kind, n)] for n in clients], positions=at, widths=width, whis=(0, 100), manage_ticks=False,
        patch_artist=True, boxprops={"facecolor": COLOURS[kind], "alpha": 0.75}, medianprops={"color": "black"}, label=label,
    )


def plot(ours, paper):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.6), gridspec_kw={"width_ratios": [1.2, 1], "wspace": 0.28})
    numbers = sorted(ours.values["create"], key=int)
    for kind, shift in (("none", -0.2), ("create", 0.2)):
        label = "no interference" if kind == "none" else "the other one creates"
        boxes(left, ours, kind, [n + shift for n in range(len(numbers))], numbers, base(ours), 0.34, label)
    left.set_xticks(range(len(numbers)), numbers)
    left.set_xlabel("clients, each in a directory of its own")
    left.set_ylabel("time of a client, of one alone")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2)
    here = statistics.fmean(seconds(ours, "none", CLIENTS))
    for n, kind in enumerate(KINDS):
        boxes(right, ours, kind, [n], [CLIENTS], here, 0.5)
    right.set_xticks(range(len(KINDS)), KINDS)
    right.set_xlabel(f"what the other one does, {CLIENTS} clients")
    right.set_ylabel(f"time of a client, of the mean of {CLIENTS} alone")
    right.axhline(1, color=style.GREY, linewidth=0.8)
    for axis in (left, right):
        axis.grid(axis="x", visible=False)
        axis.set_ylim(bottom=0)
        style.ratio_axis(axis)
    return figure


def variation(ours, kind, clients):
    """Deviation of the clients' times, as a share of their mean."""
    values = seconds(ours, kind, clients)
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def rate(ours, kind):
    """Files that the other one deals with a second."""
    return ours.point(f"the other's rate, {kind}", CLIENTS).value


def baseline(ours, _paper):
    values, files = seconds(ours, "none", "1"), ours.point("files", "each client").value
    spread = statistics.stdev(values) if len(values) > 1 else 0
    return f"1 client alone: {human(files)} files in {human(base(ours))} ± {human(spread)} s, {human(files / base(ours))} creates/s ({len(values)} runs)."


def says(ours, paper):
    none = statistics.fmean(seconds(ours, "none", CLIENTS))
    kinds = ", ".join(
        f"{kind} {human(statistics.fmean(seconds(ours, kind, CLIENTS)) / none)} times the time, varying by {variation(ours, kind, CLIENTS) * 100:.0f} % ({human(rate(ours, kind))} files/s)"
        for kind in KINDS[1:]
    )
    most = max(ours.values["create"], key=int)
    return (
        f"With {most} clients their times vary by {variation(ours, 'none', most) * 100:.0f} % without interference and by {variation(ours, 'create', most) * 100:.0f} % with creates of another one. With {CLIENTS} clients, which alone vary by "
        f"{variation(ours, 'none', CLIENTS) * 100:.0f} %: {kinds}. The draft says that variability grows with clients and interference, and that kinds differ, and prints no numbers, so it has no boxes here. "
        "The other one never stops here, which is the worst case, and it shares the processors of one machine with the clients and the server."
    )
