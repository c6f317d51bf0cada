#!/usr/bin/env python3
"""Explicit-state model of operations over plates: deciders, guards, outboxes, effects, crashes, windows.

    python3 model.py                 the whole table: every scenario with all rules, then each rule left out (long)
    python3 model.py SCENARIO        one scenario with all rules (all: each of them)
    python3 model.py SCENARIO RULE   the same without this rule; prints the shortest counterexample
    python3 model.py --list          names of scenarios and rules
    --volatile-guards                guards are in memory only: the variant that was decided against
    --not-stuck                      pass over states that are only stuck, and look for worse
    --faults CRASHES,DEATHS,BREAKS   instead of the scenario's own budgets

What a plate is here: a journal (its rows are a pure function of it) of which a prefix is durable, a table of guards
that others hold on its rows, operations under way, and a phase:

    down ─ recover ▶ W collect: greet plates, take effects, carry out resends of ANSWERED operations
                   ▶ D done with these, waits for the other plates
                   ▶ O open: everything

Messages are pulled: a step at the receiver reads what the sender has, at any later time, so delay and loss need no queue.
Only a granted guard is a message of its own (`flight`), because it may outlive its sender. Answers to clients that are
lost are clients that were not answered when the plate died. A crash loses the journal's suffix and all tables.
Clients do one operation after the other, send again what the plate lost, and may die (`deaths`).

routes.py: directories with parts, and to whom clients send.  handover.py: plates that go to another server.  rules.py: the rules.
"""
import argparse
import sys
from functools import lru_cache

from explore import explore
from namespace import TOKEN, Broken, apply, base, check_tree, entries, guarded, parts, plan, refuted, touched
from handover import Handover
from routes import ASKED, READS, Routes
from rules import RULES

# ---- state: (plates, clients, flight, faults left: crashes, deaths, breaks, moves, old owners) ----------------------------------------------------------------------
# plate:  (phase, boot, log, durable, guards, ops, greeted, places)
#   frame   ("op", key, event, ((plate, number)...)) | ("eff", from, number, event);  key = (client, index)
#   frames of journalled guards: ("grd", row, holder, key), ("fall", row, holder, key)
#   guards  ((row, holder, key, holder's boot)...)   ops ((key, ((row, value)...))...)   greeted (boot of each plate known here | -1)
#   places  ((remote directory, its parent, boot of its plate that granted it)...)
# client: (alive, index, stage, answers);  answer ("ok", boot, position, directories to which it was sent) | "no"
# flight: grants on their way ((from, its boot, to, its boot, key, row, value)...)
PH, BOOT, LOG, DUR, GUARDS, OPS, MET, PLACES = range(8)


class World:
    """A scenario: plates, inodes, first rows, scripts of clients, budgets of faults."""

    def __init__(self, homes, rows, scripts, crashes, deaths, breaks=0, token_last=False, leases=None, huge=(), blocks=(), moves=0, takeover=False):
        self.args = (homes, rows, scripts, crashes, deaths, breaks)
        self.token_last, self.leases = token_last, leases or {}     # leases: row → the client that may cache it
        self.home = dict(homes)
        self.home[TOKEN], self.home[ASKED] = 0, -1
        self.moves, self.takeover = moves, takeover                 # plates that go to another server; also while it lives
        self.huge = huge                                            # directories that may be split
        self.n = max(self.home.values()) + 1
        for script in scripts:                                      # a file is born at the plate that decides
            self.home.update({f"{op[3]}@{p}": p for op in script if op[0] == "create" and op[1] in huge for p in range(self.n)})
        self.blocks = blocks
        self.home.update({f"{b}@{p}": p for b in blocks for p in range(self.n)})
        self.rows = rows
        self.scripts = scripts
        self.crashes, self.deaths, self.breaks = crashes, deaths, breaks


class Model(Routes, Handover):
    def __init__(self, world, without=(), journalled=True):
        self.w, self.journalled = world, journalled
        self.on = {r: r not in without for r in RULES}
        self.rows_at = lru_cache(maxsize=None)(self._rows_at)

    def start(self):
        w = self.w
        plate = ("O", 0, (), 0, (), (), (0,) * w.n, ())
        return ((plate,) * w.n, tuple((True, 0, 0, ()) for _ in w.scripts), (), (w.crashes, w.deaths, w.breaks, w.moves, ()))

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
        """Rows on which the decision rests, in the order (plate, inode); births need none."""
        d = self.decider(op)
        rows = {op[1]} if op[0] in ("mkdir", "create") else set(touched(op))
        if op[0] == "split":
            rows.discard(op[3])
        if op[0] == "fold":
            rows = {op[1], op[3]} if self.on["fold_guards"] else {op[1]}
        if op[0] == "rmdir" and self.on["rmdir_guards_parts"]:
            row = self.row(st, op[3]) if self.w.home[op[3]] == d else have.get(op[3])
            if row and self.on["hint_dropped"]:
                rows = {op[1], op[3]}
            rows.update(p for _, p in parts(row))
        if not self.on["own_rows_in_order"]:
            rows = {r for r in rows if self.w.home[r] != d}
        if self.is_move(op) and self.on["token"]:
            rows.add(TOKEN)
        return sorted(rows, key=lambda r: (r == TOKEN and self.w.token_last, self.w.home[r], r))

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

    # ---- steps ----
    def steps(self, st):
        """All (label, next state) without faults. Raises Broken."""
        w = self.w
        for p in range(w.n):
            ph, _, log, dur, guards, ops, _, _ = st[0][p]
            if ph == "-":
                yield f"plate {p} recovers", self.recover(st, p)
                continue
            if dur < len(log):
                yield f"plate {p} commits {dur + 1}", self.plate(st, p, dur=dur + 1)
            for q in range(p):
                if st[0][q][PH] != "-" and not self.met(st, p, q):
                    yield f"plates {q} and {p} greet each other", self.greet(st, p, q)
            others = [q for q in range(w.n) if q != p]
            met_all = all(self.met(st, p, q) for q in others)
            due = any(x[2] == p and not self.has_effect(log, q, x[3]) and x[0] <= st[0][q][DUR]
                      for q in others for x in self.owed(st, q))
            lost = self.lost(st, p) if ph == "W" else []
            if ph == "W" and not lost and (met_all and not due or not self.on["window_waits_for_plates"]):
                yield f"plate {p} is done with resends", self.plate(st, p, ph="D")
            if ph == "D" and (not self.on["windows_end_together"] or not self.on["window_waits_for_plates"]
                              or met_all and all(st[0][q][PH] in "DO" for q in others)):
                yield f"plate {p} opens", self.plate(st, p, ph="O")
            # Resends of answered operations, the oldest first; others when open.
            if ph == "W" and lost and (not self.on["effects_first"] or met_all and not due):
                yield from self.work(st, p, lost[0])
            for key, _ in ops if ph == "W" and self.on["forgotten_give_back"] else ():
                if key not in lost:
                    new = self.unguard(self.set_op(st, p, key, None), p, lambda g, key=key: g[1:3] == (p, key))
                    yield f"plate {p} drops {key}, whose client is forgotten", new
            if ph == "O":
                begun = [key for key, _ in ops]
                for c, (alive, i, stage, _) in enumerate(st[1]):
                    op = self.sent(st, (c, i)) if alive and i < len(w.scripts[c]) else ("fsync",)
                    if op and op[0] not in READS and self.decider(op) == p and not self.find(log, (c, i)):
                        if (c, i) not in begun and (stage or not self.path((c, i))):
                            begun.append((c, i))
                for key in begun:
                    yield from self.work(st, p, key)
            for q in others:
                # Effects, in order.
                n = 1 + sum(f[0] == "eff" and f[1] == q for f in log)
                for at, f, to, m in self.owed(st, q) if self.met(st, p, q) else ():
                    if to == p and m == n and (at <= st[0][q][DUR] or not self.on["effect_durable"]):
                        new = self.plate(st, p, log=log + (("eff", q, n, f[2]),))
                        self.rows_at(p, new[0][p][LOG])
                        ends = lambda g, key=f[1], q=q: g[1:3] == (q, key) and g[0] != TOKEN
                        yield f"plate {p} applies effect {n} of plate {q} {f[2]}", self.unguard(new, p, ends)
            if ph == "O":
                yield from self.returns(st, p)
            for g in guards:
                if self.may_fall(st, p, g):
                    new = self.unguard(st, p, lambda x: x == g)
                    if self.journalled and g[1] != p:
                        new = self.plate(new, p, log=log + (("fall",) + g[:3],))
                    yield f"guard {g} at plate {p} ends", new
        yield from self.handover_steps(st)
        for m in st[2]:
            yield from self.receive(st, m)
        for c in range(len(w.scripts)):
            yield from self.client_steps(st, c)

    def path(self, key):
        op = self.w.scripts[key[0]][key[1]]
        return op[4] if op[0] == "create" and len(op) > 4 else None

    def recover(self, st, p):
        st = self.plate(st, p, ph="W", boot=st[0][p][BOOT] + 1)
        held = {}
        for f in st[0][p][LOG]:
            if f[0] == "grd":
                held[f[1]] = f[1:] + (-1,)
            for r in (f[1],) if f[0] == "fall" else touched(f[3]) if f[0] == "eff" else ():
                if r in held and held[r][1] == (f[2] if f[0] == "fall" else f[1]):
                    del held[r]
        st = self.plate(st, p, guards=tuple(sorted(held.values())))
        if p == 0 and self.on["token_survives"]:
            for key in self.unsettled_moves(st, 0):
                st = self.guard(st, 0, TOKEN, 0, key)
        return st

    def greet(self, st, a, b):
        """Both learn the other's boot; each declares the guards that it holds at the other, and those unknown fall."""
        for p, q in ((a, b), (b, a)):                       # q holds at p
            met = st[0][p][MET]
            st = self.plate(st, p, met=met[:q] + (st[0][q][BOOT],) + met[q + 1:])
            mine = lambda r, p=p: self.w.home[r] == p
            for key, have in st[0][q][OPS]:
                for r, _ in have:
                    if mine(r):
                        st = self.guard(st, p, r, q, key)
            if self.on["declare_decided"]:
                for _, f, to, n in self.owed(st, q):
                    if to == p and not self.has_effect(st[0][p][LOG], q, n) and f[2][0] != "mkdir":
                        for r in filter(mine, guarded(f[2])):
                            st = self.guard(st, p, r, q, f[1])
            if p == 0:
                for key in self.unsettled_moves(st, q):
                    st = self.guard(st, 0, TOKEN, q, key)
            if self.on["place_dropped"]:
                kept = tuple(x for x in st[0][q][PLACES] if self.w.home[x[0]] != p or x[2] == st[0][p][BOOT])
                st = self.plate(st, q, places=kept)
            if not self.on["guards_survive_decider"]:
                st = self.unguard(st, p, lambda g: g[1] == q and self.is_idle(st, q, g[2]))
        if self.on["drop_old_grants"]:
            st = st[:2] + (tuple(m for m in st[2] if {m[0], m[2]} != {a, b}),) + st[3:]
        return st

    def is_idle(self, st, q, key):
        """q neither works on this operation nor owes its effects."""
        return key not in dict(st[0][q][OPS]) and not self.is_decided(st, q, key)

    def is_decided(self, st, q, key):
        return any(f[1] == key for _, f, _, _ in self.owed(st, q)) or key in self.unsettled_moves(st, q)

    def may_fall(self, st, p, g):
        row, q, key, boot = g
        if p == q:
            return row == TOKEN and self.is_idle(st, q, key) and st[0][p][PH] == "O"
        # By then every operation that q carries out again holds its guards again.
        if not self.met(st, p, q) or st[0][q][PH] in ("W", "frozen in its window") and boot < st[0][q][BOOT]:
            return False
        is_old = boot < st[0][q][BOOT] and self.on["old_guards_fall"] and not self.is_decided(st, q, key)
        return is_old or self.is_idle(st, q, key)

    def work(self, st, p, key):
        """The next step of an operation at its decider: start, take a guard, decide."""
        plate = st[0][p]
        have = dict(plate[OPS]).get(key)
        op = dict(have or ()).get(ASKED) or self.asked(st, key)
        target = self.target(op)
        if have is None:
            if self.row(st, target) is None and self.on["unborn_parks"] and self.may_be_born(st, target):
                return
            if self.on["again_after_return"] and (any(m[4] == key and m[2:4] == (p, plate[BOOT]) for m in st[2]) or any(
                    g[1:] == (p, key, plate[BOOT]) for other in st[0] for g in other[GUARDS])):
                return
            yield f"plate {p} begins {key} {op}", self.set_op(st, p, key, ((ASKED, op),) if self.is_routed(key) or op[0] == "rmdir" and op[3] in self.w.huge else ())
            return
        order = self.needs(st, op, dict(have))
        missing = [r for r in order if r not in dict(have)]
        if self.is_routed(key) and (not missing or self.on["replan_each_guard"]):
            other = self.elsewhere(st, p, op, dict(have), bool(missing))
            if other and not self.on["look_again"]:
                yield from self.refuse(st, p, key, op)
                return
            if other and (not missing or self.on["list_at_decision"] or not dict(have).keys() - {ASKED}):
                yield from self.redirect(st, p, key, op, other)
                return
        if missing and self.on["parts_in_order"] and any(r in dict(have) for r in order[order.index(missing[0]):]):
            new = self.unguard(self.set_op(st, p, key, None), p, lambda g: g[1:3] == (p, key))
            yield f"plate {p} returns what it holds for {key}, to begin again", new
            return
        if missing and self.on["replan_each_guard"]:
            known = lambda ino: self.row(st, ino) if self.w.home[ino] == p else dict(have)[ino]
            if refuted(op, lambda ino: known(ino) if ino in dict(have) else False):
                yield from self.refuse(st, p, key, op)
                return
        if missing:
            r = missing[0]
            q = self.w.home[r]
            other = st[0][q]
            if any(g[0] == r and g[1:3] != (p, key) for g in other[GUARDS]) or self.is_leased(st, r, key):
                return
            if self.is_move(op) and self.on["place_recalled"] and r in self.moved(op)[:None if self.on["exchange_recalls_both"] else 1]:
                if self.on["place_waits"] and not all(self.met(st, q, x) for x in range(self.w.n) if x != q):
                    return
                known = [x for x in range(self.w.n) for c in st[0][x][PLACES] if c[0] == r and c[2] == other[BOOT]]
                for x in known:
                    if self.met(st, q, x):
                        kept = tuple(c for c in st[0][x][PLACES] if c[0] != r)
                        yield f"plate {q} recalls the place of {r} from plate {x}", self.plate(st, x, places=kept)
                if known:
                    return
            value = None if r == TOKEN else self.row(st, r)
            if r != TOKEN and value is None and self.on["unborn_parks"] and self.may_be_born(st, r):
                return
            if q == p:
                new = self.guard(self.set_op(st, p, key, have + ((r, None),)), p, r, p, key)
                yield f"plate {p} locks its {r} for {key}", new
                return
            if self.journalled:
                frame = ("grd", r, p, key)
                if not any(g[:3] == frame[1:] for g in other[GUARDS]):
                    if other[PH] == "O" and self.met(st, p, q):
                        new = self.guard(self.plate(st, q, log=other[LOG] + (frame,)), q, r, p, key)
                        yield f"plate {q} journals the guard of plate {p} on {r} for {key}", new
                    return
                if max(i + 1 for i, f in enumerate(other[LOG]) if f == frame) > other[DUR]:
                    return
            # A plate in its window grants to plates that carry out answered operations again.
            serves = other[PH] == "O" or plate[PH] == "W" and other[PH] in "WD"
            durable = self.rows_at(q, other[LOG])[1].get(r, 0) <= other[DUR] or not self.on["guard_durable"]
            msg = (q, other[BOOT], p, plate[BOOT], key, r, value)
            if serves and durable and self.met(st, p, q) and msg not in st[2]:
                new = self.guard(st, q, r, p, key)
                yield f"plate {q} grants {r} to plate {p} for {key}", new[:2] + (tuple(sorted(st[2] + (msg,), key=repr)),) + new[3:]
            return
        mine = [r for r in touched(op) if self.w.home[r] == p]
        if self.is_routed(key) and self.on["fold_durable"] and self.is_fold_open(st, p, op):
            return
        if any(g[0] in mine and g[1:3] != (p, key) for g in plate[GUARDS]):
            return
        up = {}                                             # the ways up from where directories go, for the loop check
        ways = [to for to, moves in ((op[3], op[6]), (op[1], op[0] == "exchange" and op[8])) if moves] if self.is_move(op) else []
        at = None
        while at and at not in up or ways:
            at = ways.pop() if not at or at in up else at
            if at in up:
                continue
            q, cached = self.w.home[at], [c for c in plate[PLACES] if c[0] == at]
            if q == p or not cached:
                guarded = any(g[0] == at and g[1:3] != (p, key) for g in st[0][q][GUARDS])
                if guarded and not self.on["walk_reads_guarded"]:
                    return
            if q != p and not cached:
                serves = st[0][q][PH] == "O" or plate[PH] == "W" and st[0][q][PH] in "WD"
                if not serves or not self.met(st, p, q):
                    return
                guarded = any(g[0] == at for g in st[0][q][GUARDS])
                if self.row(st, at) and not (guarded and self.on["place_uncached_under_guard"]):
                    place = (at, self.row(st, at)[1], st[0][q][BOOT])
                    new = self.plate(st, p, places=tuple(sorted(plate[PLACES] + (place,))))
                    yield f"plate {p} caches that {at} is in {place[1]}", new
                    return
            up[at] = cached[0][1] if q != p and cached else (self.row(st, at) or (0, None))[1]
            at = up[at]
        free = not self.on["fold_guards"] and op[0] == "fold"
        view = lambda ino: self.row(st, ino) if self.w.home[ino] == p or free else dict(have)[ino]
        ev = plan(op, view, up.get, self.on["exchange_both_ways"], self.on["rmdir_guards_parts"], self.borrow(st, p, op))
        if ev is None:
            yield from self.refuse(st, p, key, op)
            return
        new = self.unguard(self.set_op(st, p, key, None), p, lambda g: g[1:3] == (p, key) and g[0] != TOKEN)
        owes = []
        for q in sorted({self.w.home[r] for r in touched(ev)} - {p}):
            n = 1 + sum(to == q for f in plate[LOG] if f[0] == "op" for to, _ in f[3])
            owes.append((q, n))
        new = self.plate(new, p, log=plate[LOG] + (("op", key, ev, tuple(owes)),))
        self.rows_at(p, new[0][p][LOG])
        yield f"plate {p} decides {key} {ev}, owes {owes}", new

    def borrow(self, st, p, op):
        """Gives for a block this plate and the plate that lends it: that of the clone's source, or (rule left out) the block's first one."""
        def lender(block):
            if self.row(st, f"{block}@{p}"):
                return p, None
            first = next(self.w.home[k] for k in self.w.rows if k.startswith(f"{block}@"))
            return p, self.w.home[op[4]] if self.on["lent_by_source"] or first == p else first
        return lender

    def returns(self, st, p):
        """A plate returns a block that no file of its own names and that it has lent to no plate; the first plate deletes it."""
        log = st[0][p][LOG]
        for b in self.w.blocks:
            row = self.row(st, f"{b}@{p}")
            if row and row[1] == 0 and not (row[2] and self.on["kept_while_lent"]):
                owes = ()
                if row[3] is not None:
                    n = 1 + sum(to == row[3] for f in log if f[0] == "op" for to, _ in f[3])
                    owes = ((row[3], n),)
                new = self.plate(st, p, log=log + (("op", (b, p, len(log)), ("return", b, p, row[3]), owes),))
                yield f"plate {p} returns {b}", new

    def refuse(self, st, p, key, op):
        target = self.target(op)
        if self.row(st, target) is None and self.is_on_its_way(st, target):
            raise Broken(f"{key} {op} is refused: its directory was made, and is not born yet")
        if key in self.lost(st, p):
            raise Broken(f"{key} {op} was answered with success and is refused when it is sent again")
        if self.is_routed(key):
            self.check_refused(st, op)
        new = self.unguard(self.set_op(st, p, key, None), p, lambda g: g[1:3] == (p, key))
        yield f"plate {p} refuses {key} {op}", self.answer(new, key, "no")

    def is_leased(self, st, r, key):
        """A client may cache the row, and returns it only when its own request is answered."""
        c = self.w.leases.get(r, key[0])
        busy = any(k == (c, st[1][c][1]) for plate in st[0] for k, _ in plate[OPS])
        return c != key[0] and st[1][c][0] and busy and not self.on["leases_back_at_once"]

    def is_on_its_way(self, st, ino):
        q = self.w.home[ino]
        return any(to == q and f[2][0] in ("mkdir", "split") and f[2][3] == ino and not self.has_effect(st[0][q][LOG], p, n)
                   for p in range(self.w.n) for _, f, to, n in self.owed(st, p))

    def may_be_born(self, st, ino):
        """Some client's mkdir may still give birth to it."""
        for c, script in enumerate(self.w.scripts):
            for i, op in enumerate(script):
                if op[0] in ("mkdir", "split") and op[3] == ino:
                    key = (c, i)
                    if i > st[1][c][1]:
                        return st[1][c][0]                  # not asked yet: only a client that lives will
                    q = self.decider(self.sent(st, key) or op)
                    log = st[0][q][LOG]
                    if self.find(log, key):
                        return not any(f[0] == "eff" and f[3][:4] == op[:4] for f in st[0][self.w.home[ino]][LOG])
                    closed = st[0][q][PH] == "O" and key not in dict(st[0][q][OPS]) and (not st[1][c][0] or st[1][c][3][i:i + 1] == ("no",))
                    return not (closed and self.on["unborn_closes"])
        return False

    def receive(self, st, m):
        q, qboot, p, pboot, key, r, value = m
        new = st[:2] + (tuple(x for x in st[2] if x != m),) + st[3:]
        have = dict(st[0][p][OPS]).get(key)
        if (st[0][p][BOOT] != pboot or have is None or r in dict(have)
                or self.on["drop_old_grants"] and st[0][p][MET][q] != qboot):
            yield f"plate {p} drops a late grant of {r}", new
        else:
            yield f"plate {p} receives {r} for {key}", self.set_op(new, p, key, have + ((r, value),))

    def answer(self, st, key, what):
        alive, i, _, answers = st[1][key[0]]
        if not alive or i != key[1]:
            return st
        return self.client(st, key[0], (alive, i + 1, 0, answers + (what,)))

    def client_steps(self, st, c):
        alive, i, stage, answers = st[1][c]
        if not alive or i == len(self.w.scripts[c]):
            return
        if self.op((c, i))[0] == "list":
            yield from self.list_on(st, c)
            return
        if self.is_routed((c, i)):
            yield from self.route(st, c)
            if not stage:
                return
        op, path = self.sent(st, (c, i)), self.path((c, i))
        if op[0] == "fsync":
            keys = [(c, j) for j, a in enumerate(answers) if a != "no" and self.op((c, j))[0] not in READS]
            if all(0 < self.find(st[0][d][LOG], k) <= st[0][d][DUR] for k in keys for d in [self.decider(self.sent(st, k))]):
                yield f"client {c} has synced", self.answer(st, (c, i), ("ok", 0, 0))
            return
        if op[0] == "look":
            p = self.w.home[op[1]]
            plate = st[0][p]
            if plate[PH] != "O" or self.on["reads_wait"] and any(g[0] == op[1] and g[1] != p for g in plate[GUARDS]):
                return
            if self.is_routed((c, i)):
                if self.row(st, op[1]) is None and self.on["unborn_parks"] and self.may_be_born(st, op[1]):
                    return
                other = self.elsewhere(st, p, op, {}, False)
                if other and self.on["look_again"]:
                    yield from self.redirect(st, p, (c, i), op, other)
                    return
                self.check_seen(st, c, op)
            for d in range(self.w.n):
                for _, f, to, n in self.owed(st, d):
                    is_answered = f[2][0] != "return" and st[1][f[1][0]][1] > f[1][1]
                    if to == p and op[1] in touched(f[2]) and not self.has_effect(plate[LOG], d, n) and is_answered:
                        raise Broken(f"client {c} looks at {op[1]} and sees it as before {f[1]} {f[2]}, which was answered")
            yield f"client {c} looks at {op[1]}", self.answer(st, (c, i), ("ok", 0, 0))
            return
        if path and not stage:                               # it finds the directory's number by name first
            row = self.row(st, path[0])
            if st[0][self.w.home[path[0]]][PH] == "O":
                found = entries(row).get(path[1]) == op[1]
                what = (alive, i, 1, answers) if found else (alive, i + 1, 0, answers + ("no",))
                yield f"client {c} looks up {'/'.join(path)}: {'found' if found else 'not there'}", self.client(st, c, what)
            return
        p = self.decider(op)
        at = self.find(st[0][p][LOG], (c, i))
        if at and st[0][p][PH] != "-":
            yield f"client {c} is answered {op}", self.answer(st, (c, i), ("ok", st[0][p][BOOT], at) + ((stage,) if self.is_routed((c, i)) else ()))

    def faults(self, st):
        plates, clients, _, (crashes, deaths, breaks, *more) = st
        yield from self.moves(st)
        for p, plate in enumerate(plates if crashes else ()):
            if plate[PH] != "-":
                lost = len(plate[LOG]) - plate[DUR]
                new = self.plate(st, p, ph="-", log=plate[LOG][:plate[DUR]], guards=(), ops=(), met=(-1,) * self.w.n, places=())
                yield f"PLATE {p} CRASHES, loses {lost} frames", new[:3] + ((crashes - 1, deaths, breaks, *more),)
        for c, (alive, i, stage, answers) in enumerate(clients if deaths else ()):
            if alive and (i or stage or any((c, i) in dict(plate[OPS]) for plate in plates)):
                new = self.client(st, c, (False, i, stage, answers))
                yield f"CLIENT {c} DIES", new[:3] + ((crashes, deaths - 1, breaks, *more),)
        for p in range(self.w.n) if breaks else ():
            for q in range(p):
                if self.met(st, p, q):
                    new = self.plate(self.plate(st, p, met=self.forget(plates[p], q)), q, met=self.forget(plates[q], p))
                    yield f"CONNECTION of plates {q} and {p} BREAKS", new[:3] + ((crashes, deaths, breaks - 1, *more),)

    @staticmethod
    def forget(plate, q):
        return plate[MET][:q] + (-1,) + plate[MET][q + 1:]

    # ---- what must hold when nothing moves any more ----
    def check_quiet(self, st):
        plates, clients = st[:2]
        for c, (alive, i, _, _) in enumerate(clients):
            if alive and i < len(self.w.scripts[c]):
                raise Broken(f"stuck: client {c} waits for {self.w.scripts[c][i]} for ever")
        for p, plate in enumerate(plates):
            if plate[PH] != "O" or plate[GUARDS] or plate[OPS] or list(self.owed(st, p)):
                raise Broken(f"stuck: plate {p} is {plate[PH]}, guards {plate[GUARDS]}, under way {plate[OPS]}, "
                             f"owes {[(f[1], to) for _, f, to, _ in self.owed(st, p)]}")
        rows = {}
        for p, plate in enumerate(plates):
            rows.update(self.rows_at(p, plate[LOG])[0])
        check_tree(rows)
        for c, (alive, i, _, answers) in enumerate(clients):
            synced = max((j for j, a in enumerate(answers) if self.op((c, j))[0] == "fsync"), default=-1)
            for j, op in enumerate(self.w.scripts[c]):
                if op[0] in READS:
                    continue
                count = sum(f[0] == "op" and f[1] == (c, j) for plate in plates for f in plate[LOG])
                ok = j < len(answers) and answers[j] != "no"
                if count > 1 or (ok and (alive or j < synced) and count != 1) or (j < len(answers) and not ok and count):
                    raise Broken(f"client {c}'s {op}: answered {answers[j:j + 1]}, {count} times in the journals")


def main():
    from scenarios import NOTICED, scenarios
    args = argparse.ArgumentParser(description="Explores the model of operations over plates.")
    args.add_argument("scenario", nargs="?", help="one scenario, or all; without it the whole table")
    args.add_argument("rule", nargs="*", help="rules to leave out")
    args.add_argument("--list", action="store_true", help="print the names of scenarios and rules")
    args.add_argument("--volatile-guards", action="store_true", help="guards are in memory only")
    args.add_argument("--not-stuck", action="store_true", help="pass over states that are only stuck")
    args.add_argument("--faults", metavar="CRASHES,DEATHS,BREAKS", help="instead of the scenario's own budgets")
    args = args.parse_args()
    worlds = scenarios(World)
    if args.list:
        print("scenarios:", *worlds)
        for r, text in RULES.items():
            print(f"  {r}: {text}")
        return
    for name in {args.scenario} - worlds.keys() - {None, "all"}:
        sys.exit(f"there is no scenario {name}; --list names them")
    for name in set(args.rule) - RULES.keys():
        sys.exit(f"there is no rule {name}; --list names them")
    for world in worlds.values() if args.faults else ():
        world.crashes, world.deaths, world.breaks = map(int, args.faults.split(","))
    everything = [(s, []) for s in worlds]
    if args.scenario is None:
        runs = everything + [(s, [r]) for r, s in NOTICED]
    else:
        runs = everything if args.scenario == "all" else [(args.scenario, args.rule)]
    for name, without in runs:
        model = Model(worlds[name], without, not args.volatile_guards)
        states, transitions, found = explore(model, stuck_too=not args.not_stuck)
        rules = f"without {', '.join(without)}" if without else "all rules"
        print(f"{name}, {rules}: {states} states, {transitions} transitions: {found[0] if found else 'nothing breaks'}", flush=True)
        for i, label in enumerate(found[1] if found else ()):
            print(f"   {i + 1}. {label}")


if __name__ == "__main__":
    main()
