"""mdtest."""

import thesis

TITLE = "Figures 5.12 to 5.15: mdtest, 100 files of each process in a new shared directory"
SHOWS = "Creates a second of many processes that begin together in a new directory, by policy and number of servers of a cluster."
POLICIES = {"never": "huge-never", "threshold (the thesis's dynamic)": "huge-threshold", "always": "huge-always"}
KINDS = ("never", "threshold", "always")


def counts(ours):
    return thesis.servers(ours, "never")


def baseline(ours, _paper):
    return "A directory that is never split, with as many servers and clients."


def plot(ours, _paper):
    curves = [(kind, lambda name, kind=kind: f"{kind}, {name}") for kind in KINDS]
    return thesis.panels(ours, [f"servers {count}" for count in counts(ours)], curves, "clients")


def says(ours, _paper):
    most, clients = counts(ours)[-1], thesis.last(ours, "never, servers 1")
    gain = lambda kind: thesis.ratio(ours, f"{kind}, servers {most}", f"never, servers {most}", clients)
    return (
        f"With {most} server(s) and {clients} clients, \"always\" has {gain('always'):.3g} of the rate of \"never\", and \"threshold\" {gain('threshold'):.3g}. The thesis prints one number, "
        "110,000 creates/s with 8 servers under \"always\", and that \"dynamic\" lies between the others. It has 256 clients, and its runs take a few seconds. "
        "Ours are shorter, so that the start of the clients and a split weigh more. " + thesis.PLATES + " " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    names = [f"{kind}, servers {count}" for count in counts(ours) for kind in KINDS]
    heads, rows = thesis.compared(ours, paper, names, lambda name: "never, " + name.split(", ")[1])
    return heads, rows + [thesis.unmeasured("thesis: always, servers 8", point, heads) for point in paper.points("always, servers 8")]
