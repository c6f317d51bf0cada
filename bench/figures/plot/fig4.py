"""Chapter 4: HP trace, trees, metarates."""

import thesis

TITLE = "Figures 4.6 and 4.7: HP trace, creation and traversal of directories, metarates"
SHOWS = "Operations a second of 1 and more clients with private directories, by the number of servers of a cluster."
NAMES = ("HP trace", "creation of directories", "traversal of directories", "create-close", "stat", "utime")
POLICIES = {"all": "posix"}


def counts(ours):
    return thesis.servers(ours, NAMES[0])


def baseline(ours, _paper):
    return "One server with the same number of clients. The thesis's other baseline, Lustre 1.8.2, is not measured here."


def plot(ours, _paper):
    curves = [(f"{count} server(s)", lambda name, count=count: f"{name}, servers {count}") for count in counts(ours)]
    return thesis.panels(ours, NAMES, curves, "clients")


def says(ours, _paper):
    most, clients = counts(ours)[-1], thesis.last(ours, f"{NAMES[0]}, servers 1")
    scale = lambda kind: thesis.ratio(ours, f"{NAMES[0]}, servers {most}{kind}", f"{NAMES[0]}, servers 1{kind}", clients)
    scaling = (
        f"With {most} servers and {clients} clients the trace runs {scale(''):.3g} times as fast as with one, and {thesis.said(scale(': by CPU'))} times by "
        "processor time of the servers (the thesis, 4 servers and 256 clients: 3.04). "
        if most > 1 else "Only one server was measured: etcd or the command is missing. "
    )
    return scaling + (
        "The trace is generated with the mix of Table 4.1, and directories are trees with the numbers of files and directories that the thesis "
        "names, both smaller here. Clients of Chiton cache names under leases, so that many lookups of the trace send no message; "
        "and a single client stats files that it made, which it knows. "
    ) + thesis.ONE_MACHINE


def table(ours, paper):
    return thesis.table(ours, paper, [f"{name}, servers {count}" for name in NAMES for count in counts(ours)])
