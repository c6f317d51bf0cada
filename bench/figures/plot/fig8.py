"""A second command beside a job."""

import statistics

import style
from series import human
from style import plt

TITLE = "Figure 8 of the draft: a second command in the directory of a job"
SHOWS = (
    "One client creates files in a directory. When a thirteenth of them are there (the draft: after 15 s of some 195), stat or touch of all files that are there by then begins, by the same client in a second "
    "thread or by another client. Left, the job's time against being alone; right, what a file costs the command, which alone looks at all files after the job."
)
POLICIES = {"all clients": "posix"}
COMMANDS = ("stat", "touch")
WHO = ("the same client", "another client")
COLOURS = {"alone": style.GREY, "the same client": style.BLUE, "another client": style.ORANGE}


def base(ours):
    """The job alone, s."""
    return ours.point("job", "alone").value


def of_a_file(ours, what):
    """us that a file costs a command: of each run, then their mean."""
    runs = zip(ours.values["command"][what], ours.values["files of the command"][what])
    each = [seconds / max(files, 1) * 1e6 for (seconds, _), (files, _) in runs]
    deviation = statistics.stdev(each) if len(each) > 1 else 0.0
    return ours.point("command", what)._replace(value=statistics.fmean(each), deviation=deviation, unit="us")


def plot(ours, paper):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), gridspec_kw={"width_ratios": [1.2, 1], "wspace": 0.3})
    jobs = ["alone", *(f"{command} by {who}" for command in COMMANDS for who in WHO)]
    points = {point.x: point for point in ours.over("job", base(ours))}
    for at, job in enumerate(jobs):
        colour = COLOURS[job.split(" by ")[-1]]
        style.bars(left, [at], [points[job]], 0.6, None, color=colour)
    left.set_xticks(range(len(jobs)), [job.replace(" by ", "\nby ").replace("same ", "same\n").replace("another ", "another\n") for job in jobs], fontsize=8.5)
    left.axhline(1, color=style.GREY, linewidth=0.8)
    left.grid(axis="x", visible=False)
    style.ratio_axis(left)
    left.set_ylabel("time of the job, of being alone")
    left.set_title("the job that creates", fontsize=11)
    for n, command in enumerate(COMMANDS):
        for k, who in enumerate(("alone", *WHO)):
            what = f"{command}, alone" if who == "alone" else f"{command} by {who}"
            style.bars(right, [n + (k - 1) * 0.28], [of_a_file(ours, what)], 0.25, who if n == 0 else None, color=COLOURS[who])
    right.set_xticks(range(len(COMMANDS)), COMMANDS)
    right.grid(axis="x", visible=False)
    right.set_ylabel("time of the command, us a file")
    right.set_title("the second command", fontsize=11)
    right.legend(loc="upper left", fontsize=8.5)
    right.set_ylim(0, right.get_ylim()[1] * 1.25)
    left.set_ylim(bottom=0)
    return figure


def baseline(ours, _paper):
    point, files = ours.point("job", "alone"), ours.point("files", "job").value
    return f"The job alone: {human(files)} files in {human(point.value)} ± {human(point.deviation)} s, {human(files / point.value)} creates/s ({point.runs} runs)."


def says(ours, paper):
    told = []
    for command in COMMANDS:
        for who in WHO:
            what = f"{command} by {who}"
            ratio, files = ours.point("job", what).value / base(ours), ours.point("files of the command", what).value
            told.append(f"{what} ({human(files)} files) {human(ratio)} times")
    costs = "; ".join(
        f"{command} takes {human(of_a_file(ours, f'{command}, alone').value)} us a file alone, {human(of_a_file(ours, f'{command} by {WHO[0]}').value)} by the client of the job and "
        f"{human(of_a_file(ours, f'{command} by {WHO[1]}').value)} by another" for command in COMMANDS
    )
    return (
        f"The job takes, beside {', '.join(told)} as long as alone. {costs[0].upper()}{costs[1:]}. In the draft the job suffers little, since its server has time left, "
        "and commands are bounded by a request for each file, so that a command takes longest alone, where most files are there. Here the two clients and the server share the processors of one machine. The draft prints no numbers for this figure, so it has no bars here."
    )
