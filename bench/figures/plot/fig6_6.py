"""Batches in one directory."""

import thesis

TITLE = "Figures 6.6 and 6.8, one server: batches in one directory"
SHOWS = "Creates, stats and unlinks a second of many clients in one directory of several sizes, one by one and by batches of 1,000."
POLICIES = {"all": "posix"}
NAMES = ("create", "stat", "unlink")
KINDS = ("one by one", "batches")


def baseline(ours, _paper):
    return "One by one, by the same clients in the same run."


def plot(ours, _paper):
    return thesis.panels(ours, NAMES, [(kind, lambda name, kind=kind: f"{name}, {kind}") for kind in KINDS], "files")


def says(ours, _paper):
    size = thesis.last(ours, "create, batches")
    gains = [thesis.ratio(ours, f"{name}, batches", f"{name}, one by one", size) for name in NAMES]
    return (
        "With {} files batches make {:.3g} times the creates, {:.3g} times the stats and {:.3g} times the unlinks (the thesis with SSDs, in distributed directories: at least 1.5, "
        "1.25, and 1.6 with Ext4). ".format(size, *gains)
        + thesis.UNSPLIT + " " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    return thesis.table(ours, paper, [f"{name}, {kind}" for kind in KINDS for name in NAMES])
