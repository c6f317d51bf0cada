"""Scenarios: what each client's program does, and which faults there may be."""

SCENARIOS = {
    "append":   dict(scripts=("as", "as")),
    "readers":  dict(scripts=("ar", "rar")),
    "write":    dict(scripts=("wsr", "wr")),
    "shared":   dict(scripts=("rr", "ws"), drift=1, timed=True),
    "cached":   dict(scripts=("arr", "as"), drift=1, timed=True),
    "death":    dict(scripts=("ar", "ars"), deaths=1),
    "stale":    dict(scripts=("rr", "w")),
    "shared-t": dict(scripts=("rr", "w"), drift=1, timed=True, silence=False),
    "silent-t": dict(scripts=("aa", "a"), drift=1, timed=True),
    "zombie-t": dict(scripts=("rr", "w"), crashes=0, zombies=1, drift=1, timed=True, silence=False),
    "twice":    dict(scripts=("as", "as"), crashes=2),
    "silent":   dict(scripts=("aas", "ar"), crashes=1, drift=1, timed=True),
    "zombie":   dict(scripts=("rr", "ws"), crashes=0, zombies=1, drift=1, timed=True),
    "zombie-w": dict(scripts=("aas", "ar"), crashes=0, zombies=1, drift=1, timed=True),
    "three":    dict(scripts=("as", "a", "r"), crashes=1),
    "hole":     dict(scripts=("a", "as"), deaths=1, strict=True),
    "names":    dict(scripts=("xu", "xs"), repair="push"),
    "names-2":  dict(scripts=("xs", "u", "x"), repair="push"),
    "names-d":  dict(scripts=("xus", "xs"), repair="push", deaths=1),
}
