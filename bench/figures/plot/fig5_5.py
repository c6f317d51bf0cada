"""One shared directory."""

import thesis

TITLE = "Figures 5.5 and 5.8, one server: a shared directory, and private ones"
SHOWS = "Creates, stats and unlinks a second by many clients, in one directory of several sizes and in directories of each client's own."
POLICIES = {"all": "posix"}
NAMES = ("create", "stat", "unlink")
KINDS = ("one directory", "private directories")


def baseline(ours, _paper):
    return "The same clients in directories of their own, in the same run."


def plot(ours, _paper):
    return thesis.panels(ours, NAMES, [(kind, lambda name, kind=kind: f"{name}, {kind}") for kind in KINDS], "files")


def says(ours, _paper):
    size = thesis.last(ours, "create, one directory")
    shares = [thesis.ratio(ours, f"{name}, {KINDS[0]}", f"{name}, {KINDS[1]}", size) for name in NAMES]
    by_cpu = [thesis.ratio(ours, f"{name}, {KINDS[0]}: by CPU", f"{name}, {KINDS[1]}: by CPU", size) for name in NAMES]
    return (
        "With {} files the shared directory has {:.3g} of the creates, {:.3g} of the stats and {:.3g} of the unlinks of private ones; by processor time of the server {}, {} and {}. ".format(size, *shares, *map(thesis.said, by_cpu))
        + "The thesis prints no numbers for one server; beside ours stands its plain directory of figure 5.16, on one of 8 servers that also held a part of "
        "another. " + thesis.UNSPLIT + " " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    heads, rows = thesis.table(ours, paper, [f"{name}, {kind}" for kind in KINDS for name in NAMES])
    return heads, rows + [
        [f"{name}, one directory", point.x, "not measured", "", "", "", thesis.human(point.value)]
        for name in NAMES for point in paper.points(f"{name}, one directory")
    ]
