"""Eight directories at once."""

import thesis

TITLE = "Tables 5.3, 5.4 and 6.1: eight directories at once"
SHOWS = "Creates, stats and unlinks a second in eight directories, by the clients of each, one by one and by batches of 1,000."
POLICIES = {"all": "posix"}
NAMES = ("create", "stat", "unlink")
NAMES_BATCHED = tuple(f"{name}, batches" for name in NAMES)


def counts(ours):
    return thesis.servers(ours, NAMES[0])


def baseline(ours, _paper):
    return "One server, one by one, with the same number of clients."


def plot(ours, _paper):
    curves = [(f"{count} server(s)", lambda name, count=count: f"{name}, servers {count}") for count in counts(ours)]
    return thesis.panels(ours, NAMES + NAMES_BATCHED, curves, "clients of each directory")


def says(ours, _paper):
    most = thesis.last(ours, "create, servers 1")
    gains = [thesis.ratio(ours, f"{name}, batches, servers 1", f"{name}, servers 1", most) for name in NAMES]
    return (
        "With one server and {} client(s) a directory, batches make {:.3g} times the creates, {:.3g} times the stats and {:.3g} times the unlinks (the thesis with 16 "
        "clients, tables 5.4 and 6.1: 1.08, 1.84 and 0.90). ".format(most, *gains)
        + "The thesis prints times for 2,560,000 files, which are rates here; its values are those of SSDs and Ext4. A stat of a batch is still a question for each name "
        "here, many of them under way at once. " + thesis.NO_PARTS + " Table 5.5 (OrangeFS) is left out. " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    names = [f"{name}, servers {count}" for name in NAMES + NAMES_BATCHED for count in counts(ours)]
    return thesis.table(ours, paper, names)
