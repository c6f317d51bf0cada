"""mdtest."""

import thesis

TITLE = "Figures 5.12 and 5.14: mdtest, 100 files of each process in a new shared directory"
SHOWS = "Creates a second of many processes that begin together in a new directory, by the number of servers of a cluster."
POLICIES = {"all": "posix"}


def counts(ours):
    return thesis.servers(ours, "never")


def baseline(ours, _paper):
    return "One server with the same number of clients."


def plot(ours, _paper):
    curves = [(f"{count} server(s)", lambda name, count=count: f"{name}, servers {count}") for count in counts(ours)]
    return thesis.panels(ours, ["never"], curves, "clients")


def says(ours, _paper):
    return (
        "The directory is on one plate, so more servers do not help one iteration; successive directories are on different ones. The thesis prints one number, "
        "110,000 creates/s with 8 servers and a directory that is distributed from its beginning. The thesis has 256 clients, and its runs take a few seconds. "
        "Ours are shorter, so that the start of the clients weighs more. " + thesis.NO_PARTS + " " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    return thesis.table(ours, paper, [f"never, servers {count}" for count in counts(ours)])
