"""Interference, allowed and blocked."""

import style
from fig3b import beside, per_client
from series import human
from style import plt

TITLE = "Figure 6b: interference, allowed and blocked"
SHOWS = (
    "Slowdown of the slowest of 1 to 20 clients while another one creates one file for a hundred of theirs in each of their directories. Strong clients, and decoupled ones "
    "that let others act on the global namespace (allow) or refuse them with EBUSY (block)."
)
POLICIES = {"strong clients": "posix", "decoupled, allow": "interfere-allow", "decoupled, none and block": "interfere-block"}
STRONG = {"strong, none": "no interference", "strong, allow": "interference"}
DECOUPLED = {"decoupled, none": "no interference", "decoupled, allow": "allow interference", "decoupled, block": "block interference"}


def plot(ours, paper):
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), gridspec_kw={"wspace": 0.4})
    for axis, names, title in zip(axes, (STRONG, DECOUPLED), ("strong clients", "decoupled clients")):
        base = ours.point(next(iter(names)), 1).value
        for (name, label), colour, marker in zip(names.items(), style.COLOURS, style.MARKERS):
            style.ours(axis, ours.over(name, base), label, colour, marker)
        axis.set_title(title, fontsize=11)
        style.ratio_axis(axis)
        axis.set_ylim(bottom=0)
        style.clients_axis(axis, ours.points(next(iter(names))))
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12))
    axes[0].set_ylabel("time of the slowest client, of one alone")
    beside(axes[2], per_client(ours, DECOUPLED), paper, DECOUPLED)
    axes[2].set_title("here decoupled, the paper's strong", fontsize=11, pad=24)
    return figure


def baseline(ours, _paper):
    told = []
    for kind, series in (("strong", "strong, none"), ("decoupled", "decoupled, none")):
        point, files = ours.point(series, 1), ours.point("files", kind).value
        told.append(f"1 {kind} client alone: {human(files)} files in {human(point.value)} ± {human(point.deviation)} s, {human(files / point.value)} creates/s")
    return "; ".join(told) + ". The paper's: 513 creates/s, strong."


def says(ours, paper):
    strong, decoupled = per_client(ours, STRONG), per_client(ours, DECOUPLED)
    block, allow = decoupled["decoupled, block"], decoupled["decoupled, allow"]
    noise = max(point.deviation / point.value for point in ours.points("decoupled, none"))
    refusals = ours.points("a refusal takes")[-1].value
    idle, pressed = (ours.point(f"single creates, {name}", "p99") for name in ("none", "block"))
    more = (pressed.value / idle.value - 1) * 100
    runs_noise = idle.deviation / idle.value * 100
    return (
        f"Blocked interference costs decoupled clients {human(block[0])} ± {human(block[1])} times the time without any (paper: 1.34 against 1.42, 0.94 times), "
        f"allowed {human(allow[0])} ± {human(allow[1])} times, and strong clients {human(strong['strong, allow'][0])} times (paper: 1.18 times); single points vary by up to {noise * 100:.0f} % "
        f"from run to run. A refusal takes {human(refusals)} us. The paper blocks in a strong subtree; here a subtree is kept from others while it is decoupled, and then its client does not need the "
        f"server at all, so refusing others cannot slow it but by the processors that it takes. While another client tries as fast as it can ({human(ours.point('refused at full speed', '1').value)} refusals a second), "
        f"p99 of the single creates of a blocking client goes from {human(idle.value)} to {human(pressed.value)} us, {more:+.0f} % (of {idle.runs} runs, which differ by {runs_noise:.0f} % themselves): "
        f"{'within' if more <= 10 else 'more than'} the 10 % that isolation should cost at most{'' if more <= 10 else ', on processors that victim, server and interferer share'}."
    )
