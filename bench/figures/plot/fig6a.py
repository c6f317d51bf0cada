"""Parallel creates."""

import style
from series import human
from style import plt

TITLE = "Figure 6a: parallel creates"
SHOWS = (
    "Throughput of the whole job when 1 to 20 clients create files, each in a directory of its own: one request each (rpcs), "
    "decoupled with the journal on the local disk, and decoupled with all journals merged at the same moment."
)
POLICIES = {"rpcs": "posix", "decoupled": "batchfs"}
CURVES = ("rpcs", "decoupled: create + merge", "decoupled: create")


def base(ours):
    """One client with rpcs, creates/s."""
    return ours.point("rpcs", 1).value


def baseline(ours, _paper):
    point = ours.point("rpcs", 1)
    return f"1 client, rpcs: {human(point.value)} ± {human(point.deviation)} creates/s ({point.runs} runs). The paper's: 549 creates/s."


def plot(ours, paper):
    figure, axis = plt.subplots(figsize=(7.2, 4.6))
    for name, colour, marker in zip(CURVES, style.COLOURS, style.MARKERS):
        style.ours(axis, ours.over(name, base(ours)), name, colour, marker)
        style.papers(axis, paper.points(name), f"{name} (paper)", colour, marker)
    looking = ours.over("rpcs with a lookup before each", base(ours))
    style.ours(axis, looking, "rpcs, a lookup before each", style.RED, "X")
    style.ratio_axis(axis, log=True)
    style.clients_axis(axis, ours.points("rpcs"))
    axis.set_ylabel("speed-up over one client with rpcs (log)")
    style.legend_below(figure, axis, 2)
    return figure


def says(ours, paper):
    most = ours.points("rpcs")[-1].x
    at = {name: ours.point(name, most).value for name in CURVES}
    create, merge = at["decoupled: create"] / at["rpcs"], at["decoupled: create + merge"] / at["rpcs"]
    return (
        f"With {most} clients decoupled creates are {create:.3g} times the rpcs of the same clients (paper: 91.7), with the merge "
        f"{merge:.3g} times (paper: 3.37). In the paper every client has a machine of its own, so decoupled creates grow with the clients; "
        "here all clients and the server share the processors of one machine, so that curve flattens once they are busy."
    )
