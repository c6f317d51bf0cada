"""updatedb beside a client that creates."""

import style
from series import human
from style import plt

TITLE = "updatedb, the draft's macro benchmark"
SHOWS = (
    "plocate's updatedb over a tree of small files on a mount that has nothing cached: alone, and while another client creates files in one more folder of the tree, which is posix or which it has for itself (batchfs). Beside it, the same "
    "tree on the disk on which the server keeps its files. All files that were there before it began must be listed, or nothing is drawn."
)
POLICIES = {"the tree, the posix creator": "posix", "the batchfs creator": "batchfs"}
CREATORS = {"posix": style.BLUE, "batchfs": style.ORANGE}
WHERE = ("local disk", "mount, alone", "mount, beside a posix creator", "mount, beside a batchfs creator")


def plot(ours, paper):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), gridspec_kw={"width_ratios": [1.25, 1], "wspace": 0.32})
    colours = (style.GREY, style.SKY, style.BLUE, style.ORANGE)
    for at, (where, colour) in enumerate(zip(WHERE, colours)):
        style.bars(left, [at], [ours.point("updatedb", where)], 0.6, None, color=colour)
    left.set_ylim(bottom=0)
    style.plain_axis(left)
    left.set_xticks(range(len(WHERE)), [where.replace(", ", ",\n").replace("a posix", "a\nposix").replace("a batchfs", "a\nbatchfs") for where in WHERE], fontsize=8.5)
    left.grid(axis="x", visible=False)
    left.set_ylabel("time of updatedb, s")
    for n, (policy, colour) in enumerate(CREATORS.items()):
        style.bars(right, [n - 0.2], [ours.point("creates alone", policy)], 0.36, "alone" if n == 0 else None, color=colour, alpha=0.45)
        style.bars(right, [n + 0.2], [ours.point("creates beside updatedb", policy)], 0.36, "beside updatedb" if n == 0 else None, color=colour)
    right.set_yscale("log")
    right.set_ylim(top=right.get_ylim()[1] * 3)
    style.plain_axis(right)
    right.set_xticks(range(len(CREATORS)), [f"{policy} creator" for policy in CREATORS])
    right.grid(axis="x", visible=False)
    right.set_ylabel("creates/s of the other client (log)")
    right.legend([plt.Rectangle((0, 0), 1, 1, color=style.GREY, alpha=alpha) for alpha in (0.45, 1)], ["alone", "beside updatedb"], loc="upper left")
    return figure


def baseline(ours, _paper):
    point, files = ours.point("updatedb", "local disk"), ours.point("tree", "files").value
    return (
        f"The tree on the local disk: {human(files)} files in {human(ours.point('tree', 'folders').value)} folders, updatedb {human(point.value)} ± {human(point.deviation)} s ({point.runs} runs); "
        f"on the mount, alone: {human(ours.point('updatedb', WHERE[1]).value)} ± {human(ours.point('updatedb', WHERE[1]).deviation)} s."
    )


def says(ours, paper):
    disk, alone = (ours.point("updatedb", where).value for where in WHERE[:2])
    told = []
    for policy in CREATORS:
        beside = ours.point("updatedb", f"mount, beside a {policy} creator").value
        before, meanwhile = (ours.point(name, policy).value for name in ("creates alone", "creates beside updatedb"))
        listed = ours.point("creator's files in the listing", policy).value
        told.append(
            f"beside a {policy} creator {human(beside / alone)} times as long as alone, and the creator makes {human(meanwhile)} files a second instead of {human(before)} (of its files {human(listed)} are listed)"
        )
    return (
        f"On the mount updatedb takes {human(alone / disk)} times as long as on the local disk, whose names are in the kernel's cache; {'; '.join(told)}. A subtree that a client has for itself shows others what was there before, or refuses them. "
        "The draft only names this benchmark: it prints no numbers, so there are none here."
    )
