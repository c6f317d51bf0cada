"""A state of the model: its cells, what can be read from it, and how a state with other cells is made.

    state: (plates, clients, flight, faults left: crashes, deaths, breaks, moves, old owners)
"""
from functools import lru_cache

from namespace import TOKEN, Broken, apply, base, born, parts_of, touched, victim_of
from rules import RULES

READS = ("look", "fsync", "list", "stat")
ASKED = "!asked"          # in an operation under way: the operation with parts in the place of their home
ASKING = "!asking"        # likewise: the row whose guard it has asked for
IN_ORDER = "!in order"    # likewise: an unlink takes its own rows in their order, and not last

# plate:  (phase, boot, log, durable, guards, ops, greeted, places)
#   frame   ("op", key, event, ((plate, number)...)) | ("eff", from, number, event);  key = (client, index)
#   frames of journalled guards: ("grd", row, holder, key), ("fall", row, holder, key)
#   guards  ((row, holder, key, holder's boot)...)   ops ((key, ((row, value)...))...)   greeted (boot of each plate known here | -1)
#   places  ((remote directory, its parent, boot of its plate that granted it)...)
# client: (alive, index, stage, answers);  answer ("ok", boot, position, directories to which it was sent) | "no"
# flight: grants on their way ((from, its boot, to, its boot, key, row, value)...)
PH, BOOT, LOG, DUR, GUARDS, OPS, MET, PLACES = range(8)


class State:
    """Reads and changes states; `self.w` is the scenario and `self.on` says which rules hold."""

    def __init__(self, world, without=(), journalled=True):
        self.w, self.journalled = world, journalled
        self.on = {r: r not in without for r in RULES}
        self.rows_at = lru_cache(maxsize=None)(self._rows_at)

    # ---- looking at a state ----
    def _rows_at(self, p, log):
        """Rows of plate p, and for each the position of its last change."""
        mine = lambda ino: self.w.home[ino] == p
        if not log:
            return {i: r for i, r in self.w.rows.items() if mine(i)}, {}
        rows, changed = self.rows_at(p, log[:-1])
        if log[-1][0] in ("grd", "fall"):
            return rows, changed
        ev = log[-1][2] if log[-1][0] == "op" else log[-1][3]
        changed = dict(changed)
        for ino in touched(ev):
            if mine(ino):
                changed[ino] = len(log)
        return apply(rows, ev, mine), changed

    def row(self, st, ino):
        p = self.w.home[ino]
        return self.rows_at(p, st[0][p][LOG])[0].get(ino)

    def op(self, key):
        op = self.w.scripts[key[0]][key[1]]
        return op[:4] if op[0] == "create" else op

    def target(self, op):
        return op[3] if op[0] in ("rename", "exchange") else op[1]

    def decider(self, op):
        return self.w.home[self.target(op)]

    def is_move(self, op):
        """A directory rename that changes the parent."""
        return op[0] in ("rename", "exchange") and bool(self.moved(op)) and base(op[1]) != base(op[3])

    @staticmethod
    def moved(op):
        """Directories that a rename or an exchange moves."""
        return [ino for ino, is_dir in ((op[5], op[6]), (op[7], op[8] if op[0] == "exchange" else False)) if is_dir]

    def needs(self, st, op, have):
        """Rows on which the decision rests, in the order (plate, inode), an unlink's own ones last at first; births need none."""
        d = self.decider(op)
        rows = {op[1]} if op[0] in ("mkdir", "create") else set(touched(op))
        if op[0] == "split":
            rows.discard(op[3])
        if op[0] == "fold":
            rows = {op[1], op[3]} if self.on["fold_guards"] else {op[1]}
        gone = victim_of(op)
        if gone in self.w.huge and self.on["rmdir_guards_parts"]:
            row = self.row(st, gone) if self.w.home[gone] == d else have.get(gone)
            if row and self.on["hint_dropped"]:
                rows = set(touched(op[:8] if op[0] == "rename" else op[:4]))
            rows.update(parts_of(gone, row))
        if op[0] == "chmod" and self.on["chmod_guards_parts"]:
            rows.update(parts_of(op[1], self.row(st, op[1])))
        if not self.on["own_rows_in_order"]:
            rows = {r for r in rows if self.w.home[r] != d}
        if self.is_move(op) and self.on["token"]:
            rows.add(TOKEN)
        own_last = op[0] == "unlink" and IN_ORDER not in have
        return sorted(rows, key=lambda r: (r == TOKEN and self.w.token_last, own_last and self.w.home[r] == d, self.w.home[r], r))

    @staticmethod
    def find(log, key):
        return next((i + 1 for i, f in enumerate(log) if f[0] == "op" and f[1] == key), 0)

    @staticmethod
    def has_effect(log, frm, number):
        return next((i + 1 for i, f in enumerate(log) if f[0] == "eff" and f[1:3] == (frm, number)), 0)

    def owed(self, st, p):
        """What p has decided and others have not durable: (position, frame, plate, number)."""
        for i, f in enumerate(st[0][p][LOG]):
            for q, n in f[3] if f[0] == "op" else ():
                at = self.has_effect(st[0][q][LOG], p, n)
                if not at or at > st[0][q][DUR]:
                    yield i + 1, f, q, n

    def unsettled_moves(self, st, p):
        """Keys of moves decided at p that still need the token."""
        plate = st[0][p]
        owed = {f[1] for _, f, _, _ in self.owed(st, p)}
        for i, f in enumerate(plate[LOG]):
            if f[0] == "op" and self.is_move(f[2]) and self.on["token"]:
                if f[1] in owed or (self.on["token_durable"] and i + 1 > plate[DUR]):
                    yield f[1]

    def met(self, st, p, q):
        a, b = st[0][p], st[0][q]
        return a[PH] != "-" and b[PH] != "-" and a[MET][q] == b[BOOT] and b[MET][p] == a[BOOT]

    def lost(self, st, p):
        """Answered operations of living clients that p's journal has lost, in the order of their former positions."""
        out = []
        for c, (alive, _, _, answers) in enumerate(st[1]):
            for i, a in enumerate(answers):
                op = self.sent(st, (c, i))
                if alive and a != "no" and op[0] not in READS and self.decider(op) == p:
                    if not self.find(st[0][p][LOG], (c, i)):
                        out.append((a[1], a[2], (c, i)))
        return [key for _, _, key in sorted(out)]

    def is_on_its_way(self, st, ino):
        q = self.w.home[ino]
        return any(to == q and ino in born(f[2]) and not self.has_effect(st[0][q][LOG], p, n)
                   for p in range(self.w.n) for _, f, to, n in self.owed(st, p))

    # ---- building the next state ----
    def plate(self, st, p, **kw):
        new = list(st[0][p])
        for k, v in kw.items():
            new[{"ph": PH, "boot": BOOT, "log": LOG, "dur": DUR, "guards": GUARDS, "ops": OPS, "met": MET, "places": PLACES}[k]] = v
        return (st[0][:p] + (tuple(new),) + st[0][p + 1:],) + st[1:]

    def client(self, st, c, new):
        return (st[0], st[1][:c] + (new,) + st[1][c + 1:]) + st[2:]

    def unguard(self, st, p, which):
        return self.plate(st, p, guards=tuple(g for g in st[0][p][GUARDS] if not which(g)))

    def guard(self, st, p, row, holder, key):
        for r, h, k, _ in st[0][p][GUARDS]:
            if r == row and (h, k) != (holder, key):
                raise Broken(f"two hold {row}: {k} of plate {h} and {key} of plate {holder}")
        others = tuple(g for g in st[0][p][GUARDS] if g[0] != row)
        return self.plate(st, p, guards=tuple(sorted(others + ((row, holder, key, st[0][holder][BOOT]),))))

    def set_op(self, st, p, key, have):
        ops = dict(st[0][p][OPS])
        ops.pop(key, None)
        if have is not None:
            ops[key] = have
        return self.plate(st, p, ops=tuple(sorted(ops.items())))

    def answer(self, st, key, what):
        alive, i, _, answers = st[1][key[0]]
        if not alive or i != key[1]:
            return st
        return self.client(st, key[0], (alive, i + 1, 0, answers + (what,)))
