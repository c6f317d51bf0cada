"""Four policies at once."""

import style
from series import human
from style import plt

TITLE = "Coexist: four jobs under four policies at once"
SHOWS = (
    "Four jobs that create as many files, each in a subtree of one file system: each alone under its own policy, all at once under their own policies, and all at once under posix. Until "
    "each is as durable as its policy says, and merged if that says so (batchfs)."
)
POLICIES = {name: name for name in ("posix", "batchfs", "deltafs", "ramdisk")}
NEW = True
JOBS = ("posix", "batchfs", "deltafs", "ramdisk", "all four")
SERIES = {"alone, own policy": style.SKY, "together, own policies": style.BLUE, "together, all posix": style.ORANGE}


def plot(ours, paper):
    figure, axis = plt.subplots(figsize=(9.5, 4.6))
    axis.set_yscale("log")
    for n, (name, colour) in enumerate(SERIES.items()):
        points = [ours.point(name, job) for job in JOBS]
        for at, point in enumerate(points):
            if point:
                axis.bar(at + (n - 1) * 0.27, point.value, 0.25, yerr=point.deviation, color=colour, capsize=2, label=name if at == 0 else None)
                axis.annotate(human(point.value), (at + (n - 1) * 0.27, point.value + point.deviation), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=7.5)
    axis.set_xticks(range(len(JOBS)), ["all four\n(the last)" if job == "all four" else f"{job} job" for job in JOBS])
    axis.grid(axis="x", visible=False)
    style.plain_axis(axis)
    axis.set_ylabel("time of the job, s (log)")
    style.legend_below(figure, axis, 3)
    return figure


def baseline(ours, _paper):
    files = ours.point("files", "each job").value
    point = ours.point("alone, own policy", "posix")
    return f"The posix job alone: {human(files)} files in {human(point.value)} ± {human(point.deviation)} s, {human(files / point.value)} creates/s."


def says(ours, paper):
    own, one = (ours.point(f"together, {name}", "all four").value for name in ("own policies", "all posix"))
    strong = ours.point("together, all posix", "posix").value / ours.point("together, own policies", "posix").value
    each = ", ".join(
        f"{job} {human(ours.point('together, own policies', job).value / ours.point('alone, own policy', job).value)} times" for job in JOBS[:4]
    )
    return (
        f"All four are done in {human(own)} s under their own policies and in {human(one)} s when all are posix: {human(one / own)} times. The job that has to be posix gains too, {human(strong)} times, since the "
        f"server has less to do. Against being alone, together with the others the jobs take: {each}; they share the processors of one machine."
    )
