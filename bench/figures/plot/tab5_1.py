"""Creates in one directory."""

import series
import style
import thesis
from style import plt

TITLE = "Tables 5.1 and 5.2: creates in one directory of one server"
SHOWS = "Creates a second of 1, 8 and 64 clients through the library, of as many processes on a mount of Chiton, on one of JuiceFS and through NFS, and of one process on the local file system."
OTHERS = ("Chiton, mount", "JuiceFS, mount", "NFS 4, Ganesha")
POLICIES = {"all": "posix"}
PAPER = ("FPFS, SSD, Ext4", "FPFS, HDD, Ext4")


def baseline(ours, _paper):
    return f"The local file system of this machine, one process: {thesis.human(ours.point('local file system', 1).value)} creates/s."


def plot(ours, paper):
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    base = ours.point("Chiton", 1).value
    style.ours(axis, ours.over("Chiton", base), "Chiton", style.BLUE)
    for name, colour, marker in zip(OTHERS, (style.SKY, style.PURPLE, style.RED), "sD^"):
        points = ours.points(name)
        if points:
            style.ours(axis, ours.over(name, points[0].value), name, colour, marker)
    for name, colour in zip(PAPER, (style.ORANGE, style.GREEN)):
        points = paper.points(name)
        style.papers(axis, [point._replace(value=point.value / points[0].value) for point in points], name, colour)
    axis.set_xscale("log")
    places = series.xs(ours.points("Chiton"))
    axis.set_xticks(places, [f"{place:g}" for place in places])
    axis.minorticks_off()
    axis.set_xlabel("clients")
    axis.set_ylabel("speed-up over one client")
    style.ratio_axis(axis)
    style.legend_below(figure, axis, 3)
    return figure


def others(ours, most):
    """What stands beside Chiton's mount, and what could not be measured."""
    texts = (
        "a mount of JuiceFS, whose metadata is in a Redis that writes to the disk every second, as Chiton does, and whose blocks are in a local directory",
        "NFS 4, where Ganesha exports the local file system and clients are processes with libnfs (the thesis has NFS 3)",
    )
    said = ""
    for name, text in zip(OTHERS[1:], texts):
        if ours.point(name, most) and ours.point(OTHERS[0], most):
            said += f"With {most} processes a mount of Chiton makes {thesis.ratio(ours, OTHERS[0], name, most):.3g} times the creates of {text}. "
        elif not ours.point(name, most):
            said += f"{name} was not measured, because a program that it needs is missing. "
    return said


def says(ours, _paper):
    most = thesis.last(ours, "Chiton")
    local = ours.point("Chiton", 1).value / ours.point("local file system", 1).value
    return (
        f"One client makes {local:.3g} times the creates of a process on the local file system (the thesis: 3,806 of 21,945, 0.173), and {most} clients "
        f"make {thesis.ratio(ours, 'Chiton', 'Chiton', most, 1):.3g} times those of one (the thesis: 5.01 with 64). A create is one request and one answer here, four "
        f"messages there. {others(ours, most)}HDFS and OrangeFS are not measured here. " + thesis.ONE_MACHINE
    )


def table(ours, paper):
    heads, rows = thesis.table(ours, paper, ["Chiton", *OTHERS])
    papers = {str(point.x): point.value for point in paper.points(PAPER[0])}
    for row in rows:
        if row[0] in OTHERS:
            row[4] = row[5] = "not measured"
            if row[0].startswith("NFS") and row[1] == "1":
                row[-1] = thesis.human(paper.point("NFSv3, SSD", 1).value)
            continue
        row[-1] = thesis.human(papers[row[1]]) if row[1] in papers else "not printed"
    unmeasured = [
        [name, point.x, "not measured", "", "", "", thesis.human(point.value)]
        for name in ("HadoopFS, SSD", "OrangeFS, SSD") + (() if ours.point(OTHERS[2], 1) else ("NFSv3, SSD",)) for point in paper.points(name)
    ]
    return heads, rows + [thesis.row(ours, paper, "local file system", 1, "local Ext4, SSD")] + unmeasured
