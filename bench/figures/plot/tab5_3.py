"""Eight directories at once."""

import thesis
from series import human

TITLE = "Tables 5.3 to 5.5 and 6.1: eight directories at once"
SHOWS = (
    "Creates, stats and unlinks in eight directories by the clients of each, one by one and by batches of 1,000. The columns of times are as the thesis's: how much longer the same "
    "work takes than under \"never\"."
)
POLICIES = {"never": "huge-never", "threshold (the thesis's dynamic)": "huge-threshold", "always": "huge-always", "auto": "huge-auto"}
NAMES = ("create", "stat", "unlink")
NAMES_BATCHED = tuple(f"{name}, batches" for name in NAMES)
KINDS = ("never", "threshold", "always", "auto")
HEADS = thesis.HEADS[:-1] + ("time, by never", "the thesis's (SSD)", "its time (SSD)", "its time (HDD)", "OrangeFS's time")


def counts(ours):
    return thesis.servers(ours, "create, never")


def baseline(ours, _paper):
    return "Directories that are never split, with as many servers and clients."


def plot(ours, _paper):
    most = counts(ours)[-1]
    curves = [
        (kind, lambda name, kind=kind: f"{name}, {kind}, servers {most}", lambda name: f"{name}, never, servers {most}")
        for kind in KINDS[1:]
    ]
    return thesis.speedup_panels(ours, NAMES + NAMES_BATCHED, curves, f"clients of each directory, {most} server(s)")


def says(ours, _paper):
    most = counts(ours)[-1]
    places = [point.x for point in ours.points(f"create, never, servers {most}")]
    shares = []
    for x in places:
        rates = {kind: ours.point(f"create, {kind}, servers {most}", x).value for kind in KINDS}
        shares.append(f"{rates['auto'] / max(rates['never'], rates['always']):.3g} with {x} client(s) of each directory")
    return (
        f"With {most} server(s), creates under \"auto\" have this share of the better of \"never\" and \"always\": {', '.join(shares)}. The thesis's \"dynamic\" takes up to 20 % "
        "longer with SSDs and few clients (1 client: 14 to 20 %), and up to 79 % with HDDs. The thesis has no \"auto\". It has 320,000 files in each directory. "
        + thesis.BORN_BEFORE + " " + thesis.PLATES + " " + thesis.ONE_MACHINE
    )


def longer(rate, never):
    return f"{100 * (never / rate - 1):+.0f} %" if rate and never else ""


def table(ours, paper):
    lines = []
    value = lambda data, name, x: getattr(data.point(name, x), "value", None)
    for name in NAMES + NAMES_BATCHED:
        for count in counts(ours):
            for kind in KINDS:
                series, base = f"{name}, {kind}, servers {count}", f"{name}, never, servers {count}"
                for point in ours.points(series):
                    x = point.x
                    theirs = value(paper, series, x)
                    times = [
                        "" if kind == "never" else longer(value(data, prefix + series, x), value(data, prefix + base, x))
                        for data, prefix in ((ours, ""), (paper, ""), (paper, "HDD: "), (paper, "OrangeFS: "))
                    ]
                    line = thesis.row(ours, paper, series, x)[:-1]
                    lines.append(line + [times[0], human(theirs) if theirs else "not printed"] + times[1:])
    return HEADS, lines
