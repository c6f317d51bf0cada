"""One shared directory by servers, split and unsplit."""

import thesis

TITLE = "Figures 5.6, 5.9 to 5.11, 6.7 and 6.9: one shared directory, split and unsplit, by servers"
SHOWS = (
    "The speed-up of a shared directory that is split over all plates, against the same files in one that is not, by the number of servers; one by one and by batches of "
    "1,000. The table has the rates, which are those of figures 5.5, 5.8, 6.6 and 6.8 for several servers. Its place (x) is the number of servers."
)
POLICIES = {"never": "huge-never", "threshold (the thesis's dynamic)": "huge-threshold", "always": "huge-always"}
NAMES = ("create", "stat", "unlink", "create, batches", "stat, batches", "unlink, batches")
KINDS = ("never", "threshold", "always")


def sizes(ours):
    """Files for each server."""
    start, end = "create, never, ", " files a server"
    return [name[len(start):-len(end)] for name in ours.series() if name.startswith(start) and name.endswith(end)]


def named(name, kind, size):
    return f"{name}, {kind}, {size} files a server"


def baseline(ours, _paper):
    return "The same clients and files in a directory that is never split, on as many servers, in the same run."


def plot(ours, _paper):
    curves = [
        (f"{kind}, {size} files a server", lambda name, k=kind, s=size: named(name, k, s), lambda name, s=size: named(name, "never", s))
        for size in (sizes(ours)[0], sizes(ours)[-1])[:len(sizes(ours))] for kind in KINDS[1:]
    ]
    return thesis.speedup_panels(ours, NAMES, curves, "servers")


def says(ours, _paper):
    size = sizes(ours)[-1]
    most = thesis.last(ours, named("create", "never", size))
    gain = lambda name, suffix="": thesis.said(thesis.ratio(ours, named(name, "always", size) + suffix, named(name, "never", size) + suffix, most))
    return (
        f"With {most} server(s) the directory that is always split has {gain('create')} of the creates of the unsplit one, {gain('stat')} of the stats and "
        f"{gain('unlink')} of the unlinks; by processor time of all servers {gain('create', ': by CPU')}, {gain('stat', ': by CPU')} and {gain('unlink', ': by CPU')}. The thesis's "
        "speed-ups are about the number of servers (linear or more), because each server is a machine there. All servers share this machine's processors here, "
        "so only the processor time that a split costs can be compared. The sizes are a tenth of the thesis's. OrangeFS (5.10, 5.11) is not packaged; its numbers stand below ours. "
        + thesis.BORN_BEFORE + " " + thesis.PLATES + " " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    names = [named(name, kind, size) for size in sizes(ours) for name in NAMES for kind in KINDS]
    unsplit = lambda name: name.replace(", threshold,", ", never,").replace(", always,", ", never,")
    heads, rows = thesis.compared(ours, paper, names, unsplit)
    others = [f"{name}, always, {disk}" for name in NAMES for disk in ("SSD", "HDD")] + [f"{name}, OrangeFS" for name in NAMES]
    return heads, rows + [thesis.unmeasured(f"thesis: {name}", point, heads) for name in others for point in paper.points(name)]
