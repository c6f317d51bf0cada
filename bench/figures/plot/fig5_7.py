"""Creates as a directory grows."""

import style
import thesis
from style import plt

TITLE = "Figure 5.7: creates a second as a directory grows"
SHOWS = "Creates a second of many clients in one directory, by the entries that it has."
POLICIES = {"unsplit": "posix", "split": "huge-always"}


def ends(ours, name="creates"):
    """The rate of the second and of the last step: in the first one the connections warm up."""
    found = ours.points(name)
    return found[1].value, found[-1].value


def baseline(ours, _paper):
    return f"The second step, without the clients' first requests: {thesis.human(ends(ours)[0])} creates/s."


def plot(ours, _paper):
    figure, axis = plt.subplots(figsize=(6.8, 4.2))
    style.ours(axis, thesis.points(ours, "creates"), "one server, one plate", style.BLUE)
    style.ours(axis, thesis.points(ours, "creates, split"), "one server, split over eight plates", style.ORANGE, "s")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("entries of the directory")
    axis.set_ylabel("creates a second")
    style.plain_axis(axis)
    style.legend_below(figure, axis, 2)
    return figure


def says(ours, _paper):
    (first, last), (first_split, last_split) = ends(ours), ends(ours, "creates, split")
    return (
        f"At its end the directory has {last / first:.3g} of the rate of its second step, and {last_split / first_split:.3g} if it is split (the thesis, 8 servers and 6.4 million entries: 45,000 of 95,000, 0.47, with "
        "Ext4; 115,000 of 145,000, 0.79, with ReiserFS). The thesis draws the rate of every second; here a point is a twentieth of all creates. "
        + thesis.ONE_MACHINE
    )
