"""Creates in one directory."""

import style
import thesis
from style import plt

TITLE = "Tables 5.1 and 5.2: creates in one directory of one server"
SHOWS = "Creates a second of 1, 8 and 64 clients through the library, of as many processes on a mount of Chiton and of JuiceFS, and of one process on the local file system."
MOUNTS = ("Chiton, mount", "JuiceFS, mount")
POLICIES = {"all": "posix"}
PAPER = ("FPFS, SSD, Ext4", "FPFS, HDD, Ext4")


def baseline(ours, _paper):
    return f"The local file system of this machine, one process: {thesis.human(ours.point('local file system', 1).value)} creates/s."


def plot(ours, paper):
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    base = ours.point("Chiton", 1).value
    style.ours(axis, ours.over("Chiton", base), "Chiton", style.BLUE)
    for name, colour, marker in zip(MOUNTS, (style.SKY, style.PURPLE), "sD"):
        points = ours.points(name)
        if points:
            style.ours(axis, ours.over(name, points[0].value), name, colour, marker)
    for name, colour in zip(PAPER, (style.ORANGE, style.GREEN)):
        points = paper.points(name)
        style.papers(axis, [point._replace(value=point.value / points[0].value) for point in points], name, colour)
    axis.set_xscale("log")
    axis.set_xlabel("clients")
    axis.set_ylabel("speed-up over one client")
    style.ratio_axis(axis)
    style.legend_below(figure, axis, 3)
    return figure


def mounts(ours, most):
    if not ours.point(MOUNTS[1], most):
        return "JuiceFS was not measured, because it is not installed or cannot be mounted. "
    ratio = thesis.ratio(ours, MOUNTS[0], MOUNTS[1], most) if ours.point(MOUNTS[0], most) else float("nan")
    return (
        f"With {most} processes a mount of Chiton makes {thesis.said(ratio)} times the creates of one of JuiceFS, whose metadata is in a Redis that appends to a file every second, as Chiton's journal "
        "does, and whose blocks are in a local directory. "
    )


def says(ours, _paper):
    most = thesis.last(ours, "Chiton")
    local = ours.point("Chiton", 1).value / ours.point("local file system", 1).value
    return (
        f"One client makes {local:.3g} times the creates of a process on the local file system (the thesis: 3,806 of 21,945, 0.173), and {most} clients "
        f"make {thesis.ratio(ours, 'Chiton', 'Chiton', most, 1):.3g} times those of one (the thesis: 5.01 with 64). A create is one request and one answer here, four "
        f"messages there. {mounts(ours, most)}NFS, HDFS and OrangeFS are not measured here. " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    heads, rows = thesis.table(ours, paper, ["Chiton", *MOUNTS])
    papers = {str(point.x): point.value for point in paper.points(PAPER[0])}
    for row in rows:
        if row[0] in MOUNTS:
            row[4] = row[5] = "not measured"
            continue
        row[-1] = thesis.human(papers[row[1]]) if row[1] in papers else "not printed"
    others = [
        [name, point.x, "not measured", "", "", "", thesis.human(point.value)]
        for name in ("NFSv3, SSD", "HadoopFS, SSD", "OrangeFS, SSD") for point in paper.points(name)
    ]
    return heads, rows + [thesis.row(ours, paper, "local file system", 1, "local Ext4, SSD")] + others
