"""The server while a project is unpacked, compiled and removed."""

import statistics

import style
from series import human
from style import plt

TITLE = "Figure 2: what a job asks of the server"
SHOWS = (
    "Processor, network and disk of the server's process while a project in C is unpacked, compiled and removed through a mount, in a posix subtree and in a batchfs one "
    "(which is merged before it is removed). The paper's job is the Linux kernel."
)
POLICIES = {"posix": "posix", "batchfs": "batchfs"}
GAUGES = (("processor", "processor, % of one"), ("network", "network, MiB/s"), ("disk", "disk, MiB/s written"))
SHADES = {"unpack": "#cfe3f3", "compile": "#fbe9c8", "merge": "#d9efe5", "remove": "#f2d9e8"}


def ends(ours, policy):
    """Each phase with its beginning and end, of the first run."""
    begin, phases = 0.0, []
    for phase, values in ours.values[f"{policy}: end"].items():
        phases.append((phase, begin, values[0][0]))
        begin = values[0][0]
    return phases


def plot(ours, paper):
    figure, axes = plt.subplots(3, 2, figsize=(10.5, 6.6), sharey="row", sharex="col", gridspec_kw={"wspace": 0.06, "hspace": 0.12})
    for column, policy in enumerate(POLICIES):
        for row, (gauge, label) in enumerate(GAUGES):
            axis = axes[row][column]
            for phase, begin, end in ends(ours, policy):
                axis.axvspan(begin, end, color=SHADES[phase], zorder=0)
            axis.plot(*zip(*ours.one_run(f"{policy}: {gauge}")), color=style.COLOURS[row], linewidth=1.5)
            if column == 0:
                axis.set_ylabel(label)
            axis.grid(axis="x", visible=False)
        axes[0][column].set_title(policy, fontsize=11)
        axes[2][column].set_xlabel("time, s")
        axes[2][column].set_xlim(0, ends(ours, policy)[-1][2])
    for row in range(3):
        axes[row][0].set_ylim(bottom=0)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in SHADES.values()]
    figure.legend(handles, SHADES, loc="upper center", bbox_to_anchor=(0.5, 0.04), ncol=4)
    return figure


def mean(ours, policy, gauge, phase):
    """Of the samples of a phase, in the first run; 0 if it was too short for one."""
    begin, end = next((b, e) for name, b, e in ends(ours, policy) if name == phase)
    return statistics.fmean([v for t, v in ours.one_run(f"{policy}: {gauge}") if begin < t <= end] or [0])


def baseline(ours, _paper):
    files, sources = ours.point("project", "files").value, ours.point("project", "sources").value
    told = []
    for policy in POLICIES:
        last = ours.points(f"{policy}: end")
        times = ", ".join(f"{point.x} at {human(point.value)} ± {human(point.deviation)} s" for point in last)
        told.append(f"{policy}: {times}")
    return f"{human(files)} small files and {human(sources)} sources; a phase ended, {'; '.join(told)}. The curves are those of the first run."


def says(ours, paper):
    posix = {phase: mean(ours, "posix", "processor", phase) for phase in ("unpack", "compile", "remove")}
    batch = {phase: mean(ours, "batchfs", "processor", phase) for phase in ("unpack", "compile", "merge")}
    most = max(posix, key=posix.get)
    return (
        f"In a posix subtree the server's processor is busy to {posix['unpack']:.0f} % while unpacking, {posix['compile']:.0f} % compiling and {posix['remove']:.0f} % removing: the most in the phase {most}"
        f"{', as in the paper, whose untar is the costliest phase' if most == 'unpack' else '; in the paper it is untar'}. In a batchfs subtree unpacking asks {batch['unpack']:.0f} % of it "
        f"and compiling {batch['compile']:.0f} %, what there is to do comes with the merge ({batch['merge']:.0f} %); content of files goes to the server's store in both. The network is the loopback device of "
        "this machine, of which all traffic is counted. The paper prints no numbers for this figure, so it has no curve here."
    )
