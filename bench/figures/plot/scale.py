"""The scale model."""

import style
import thesis
from series import human, values, xs
from thesis import said

TITLE = "Scale model: up to 300 servers, with costs measured here"
SHOWS = (
    "Operations a second of a model: 1 to 300 servers on machines like this one, in one shared directory on one plate (never), in one that is split over all plates (always), and in a directory of "
    "each client's own (private). A server has 8 plates and 32 clients, with batches of 1,000 two clients. Each client waits for an operation before it begins the next. The second table compares "
    "the model with what was measured on this machine, the third has the costs."
)
POLICIES = {"never, private": "huge-never", "always": "huge-always"}
NAMES = ("create", "stat", "unlink", "create, batches", "stat, batches", "unlink, batches")
KINDS = ("never", "always", "private")


def baseline(ours, _paper):
    return "The costs, from a run with one server; a message takes {:.3g} µs beside the work of both sides on this machine, and 50 µs one way between the machines of the model.".format(
        ours.point("delay", 1).value
    )


def plot(ours, _paper):
    figure, flat = thesis.empty_panels(NAMES)
    for axis, name in zip(flat, NAMES):
        for kind, colour, marker in zip(KINDS, style.COLOURS, style.MARKERS):
            style.ours(axis, thesis.points(ours, f"model: {name}, {kind}"), kind, colour, marker)
        axis.set_xscale("log")
        axis.set_yscale("log")
        least = min(value for kind in KINDS for value in values(ours.points(f"model: {name}, {kind}")))
        axis.set_ylim(bottom=least / 3)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("servers")
        places = xs(ours.points(f"model: {name}, never"))
        axis.set_xticks(places, [f"{place:g}" for place in places])
        axis.minorticks_off()
    flat[0].set_ylabel("operations a second")
    figure.tight_layout()
    style.legend_below(figure, flat[0], 3)
    return figure


def quality(ours, names, is_meant):
    """The model's rates as multiples of the measured ones at some numbers of servers: the least and the most."""
    found = [
        model.value / point.value for name in names for kind in KINDS for point in ours.points(f"here: {name}, {kind}")
        for model in [ours.point(f"here: {name}, {kind}: model", point.x)] if is_meant(int(point.x))
    ]
    return f"{min(found):.3g} to {max(found):.3g}"


def predicted(ours):
    is_several = any(int(point.x) > 1 for point in ours.points("here: create, never"))
    return f", and {quality(ours, NAMES[:3], lambda x: x > 1)} times with several" if is_several else ""


def says(ours, _paper):
    most = thesis.last(ours, "model: create, never")
    gains = [said(thesis.ratio(ours, f"model: create, {kind}", f"model: create, {kind}", most, 1)) for kind in KINDS]
    hard = said(thesis.ratio(ours, "model: create, always", "model: create, private", most))
    batched = said(thesis.ratio(ours, "model: create, batches, always", "model: create, batches, private", most))
    return (
        f"With {most} servers the model has {gains[0]} times the creates of one server in a directory on one plate, {gains[1]} times in one that is split, and {gains[2]} times in private ones; the split "
        f"directory has {hard} of the rate of private ones. With batches it has {batched}, because a batch of 1,000 becomes a message to each plate that has some of its names. "
        f"On this machine, less the processor time that other programs took meanwhile, the model's rates one by one are {quality(ours, NAMES[:3], lambda x: x == 1)} times the measured ones with one server, which "
        f"has these costs{predicted(ours)}; with batches {quality(ours, NAMES[3:], lambda x: x >= 1)} times. "
        "The thesis measured up to 8 servers and has no model. Processors and plates are modelled; disks, bandwidth, commits in the background, faults and the costs of "
        "more connections and other processes are not, so far more servers than were measured are an extrapolation. The plates are at most 4,096, as many as shards."
    )


def table(ours, paper):
    heads = ("model", "servers", "operations/s", "± 95 %", "servers' processors used", "busiest server", "the thesis's")
    rows = []
    for name in NAMES:
        for kind in KINDS:
            series = f"model: {name}, {kind}"
            for point in thesis.points(ours, series):
                used, busiest = ours.point(f"{series}: servers", point.x), ours.point(f"{series}: busiest server", point.x)
                theirs = paper.point(series, point.x)
                rows.append([
                    f"{name}, {kind}", point.x, human(point.value), human(point.deviation) if point.runs > 1 else "one run",
                    f"{used.value:.0f} %", f"{busiest.value:.0f} %", human(theirs.value) if theirs else "not printed",
                ])
    return heads, rows


def more_tables(ours, _paper):
    checks = [
        [
            f"{name}, {kind}", point.x, human(point.value), f"{ours.point(f'here: {name}, {kind}: others', point.x).value:.0f} %", human(model.value),
            f"{model.value / point.value:.3g}",
        ]
        for name in NAMES for kind in KINDS for point in ours.points(f"here: {name}, {kind}")
        for model in [ours.point(f"here: {name}, {kind}: model", point.x)]
    ]
    costs = [
        [f"{name}, {kind}"] + [human(ours.point(f"cost: {name}, {kind}: {what}, {party}", 1).value) for party in ("server", "client") for what in ("message", "name")]
        for name in NAMES[:3] for kind in KINDS
    ]
    return [
        (("on this machine", "servers", "measured, operations/s", "processors of other programs", "model", "model by measured"), checks),
        (("cost in µs of a processor", "server: a message", "server: a name", "client: a message", "client: a name"), costs),
    ]
