"""The size of batches."""

import thesis

TITLE = "Figures 6.4 and 6.5: operations in a batch, in a directory that is not split and in one that is"
SHOWS = "Creates, stats and unlinks of many clients in one directory, by the operations in a batch, as multiples of one by one."
POLICIES = {"never (figure 6.4)": "huge-never", "threshold (figure 6.5)": "huge-threshold"}
NAMES = ("create", "stat", "unlink")
KINDS = ("never", "threshold")


def counts(ours):
    return thesis.servers(ours, "create, never")


def baseline(ours, _paper):
    rates = [f"{thesis.human(ours.point(f'{name}, never, servers 1', 1).value)} {name}s/s" for name in NAMES]
    return "One by one in the same directory. On one server, not split: " + ", ".join(rates) + "."


def plot(ours, _paper):
    curves = [(f"{kind}, {count} server(s)", lambda name, k=kind, c=count: f"{name}, {k}, servers {c}") for kind in KINDS for count in counts(ours)]
    return thesis.panels(ours, NAMES, curves, "operations in a batch", log_x=True)


def says(ours, _paper):
    most = counts(ours)[-1]
    gains = [thesis.ratio(ours, f"{name}, {kind}, servers {count}", f"{name}, {kind}, servers {count}", 1000, 1) for kind, count in (("never", 1), ("threshold", most)) for name in NAMES]
    return (
        "Batches of 1,000 are {:.3g} times as fast for creates, {:.3g} times for stats and {:.3g} times for unlinks on one server without a split (the thesis: 1.34 to 1.73 with Ext4, "
        "and nearly all of it with 50), and {:.3g}, {:.3g} and {:.3g} times with {} server(s) and a split (the thesis with Ext4: 1.39 to 1.88 for creates and stats, 1.25 to 1.55 for "
        "unlinks, most of it with 500). ".format(*gains, most)
        + "The number of files does not grow with the servers here. " + thesis.BORN_BEFORE + " " + thesis.PLATES + " " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    names = [f"{name}, {kind}, servers {count}" for name in NAMES for count in counts(ours) for kind in KINDS]
    return thesis.compared(ours, paper, names, lambda name: name.replace(", threshold,", ", never,"))
