"""A split directory beside an unsplit one."""

import thesis

TITLE = "Figures 5.16 and 6.10: a split directory and an unsplit one at once"
SHOWS = "Operations a second in two directories that are used at the same time by half of the clients each: one is split over all plates, the other is not."
POLICIES = {"unsplit": "huge-never", "split": "huge-always"}
NAMES = ("create", "stat", "unlink", "create, batches", "stat, batches", "unlink, batches")
KINDS = ("split", "unsplit", "both")


def baseline(ours, _paper):
    return "The unsplit directory, at the same time."


def plot(ours, _paper):
    return thesis.panels(ours, NAMES, [(kind, lambda name, kind=kind: f"{name}, {kind}") for kind in KINDS[:2]], "servers")


def says(ours, _paper):
    most = thesis.last(ours, "create, split")
    shares = [thesis.ratio(ours, f"{name}, split", f"{name}, unsplit", most) for name in NAMES[:3]]
    gains = [thesis.ratio(ours, f"{name}, batches, split", f"{name}, split", most) for name in NAMES[:3]]
    return (
        "With {} server(s) the split directory has {:.3g} of the creates of the other, {:.3g} of the stats and {:.3g} of the unlinks (the thesis with 8 servers: 7.02, 5.08 and 5.66). ".format(most, *shares)
        + "Batches make {:.3g}, {:.3g} and {:.3g} times as many in the split one (the thesis: 1.3 or more, at most 1.36, and 1.4). ".format(*gains)
        + "Both directories get their share of the same two processors here, so neither can have several times the rate of the other. The processor time is that of both directories. "
        + thesis.PLATES + " " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    heads, rows = thesis.table(ours, paper, [f"{name}, {kind}" for name in NAMES for kind in KINDS])
    for row in rows:
        if not row[0].endswith("both"):
            row[4] = row[5] = "see both"
    names = [f"{name}, {kind}" for name in NAMES[:3] for kind in KINDS[:2]]
    return heads, rows + [thesis.unmeasured(f"thesis: {name}", point, heads) for name in names for point in paper.points(name)]
