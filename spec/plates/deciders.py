"""An operation at the plate that decides it: it begins, takes guards one after the other, and is decided or refused."""
from namespace import TOKEN, Broken, born, plan, refuted, touched, victim_of
from state import ASKED, ASKING, IN_ORDER, PH, BOOT, LOG, DUR, GUARDS, OPS, PLACES


class Deciders:
    def work(self, st, p, key):
        """The next step of an operation at its decider: start, take a guard, decide."""
        plate = st[0][p]
        have = dict(plate[OPS]).get(key)
        op = dict(have or ()).get(ASKED) or self.asked(st, key)
        target = self.target(op)
        held = [x for x in dict(have or ()) if self.w.home[x] >= 0]
        returned = self.unguard(self.set_op(st, p, key, None), p, lambda g: g[1:3] == (p, key))
        if have is None:
            if self.row(st, target) is None and self.on["unborn_parks"] and self.may_be_born(st, target):
                return
            if self.on["again_after_return"] and (any(m[4] == key and m[2:4] == (p, plate[BOOT]) for m in st[2]) or any(
                    g[1:] == (p, key, plate[BOOT]) for other in st[0] for g in other[GUARDS])):
                return
            first = ((ASKED, op),) if self.is_routed(key) or victim_of(op) in self.w.huge else ()
            attempts = sum(f[0] == "grd" and f[3] == key for other in st[0] for f in other[LOG])
            if op[0] != "unlink" or attempts <= plate[BOOT]:  # once in a start; then it is to take all in the order
                yield f"plate {p} begins {key} {op}", self.set_op(st, p, key, first)
            if op[0] == "unlink" and attempts:
                yield f"plate {p} begins {key} {op}, in the order", self.set_op(st, p, key, first + ((IN_ORDER, True),))
            return
        order = self.needs(st, op, dict(have))
        missing = [r for r in order if r not in dict(have)]
        asked = dict(have).get(ASKING) if self.on["asked_first"] else None
        if asked:                                           # one at a time, whatever the list says meanwhile
            missing = [asked] + [r for r in missing if r != asked]
        if self.is_routed(key) and (not missing or self.on["replan_each_guard"]):
            other = self.elsewhere(st, p, op, dict(have), bool(missing))
            if other and not self.on["look_again"]:
                yield from self.refuse(st, p, key, op)
                return
            if other and (not missing or self.on["list_at_decision"] or not dict(have).keys() - {ASKED, ASKING, IN_ORDER}):
                yield from self.redirect(st, p, key, op, other)
                return
        if missing and self.on["parts_in_order"] and not asked and any(r in dict(have) for r in order[order.index(missing[0]):]):
            yield f"plate {p} returns what it holds for {key}, to begin again", returned
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
            is_taken = any(g[0] == r and g[1:3] != (p, key) for g in other[GUARDS])
            is_late = q == p and any((self.w.home[x], x) > (q, r) for x in held)
            if is_taken and is_late and self.on["gives_way"]:
                yield f"plate {p} returns what it holds for {key}, to take all in the order", returned
                return
            if is_taken or self.is_leased(st, r, key):
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
                        if not asked and self.on["asked_first"]:
                            new = self.set_op(new, p, key, have + ((ASKING, r),))
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
        if self.on["list_durable"] and self.is_list_open(st, p, op):
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
        ev = plan(op, view, up.get, self.on["exchange_both_ways"], self.on["rmdir_guards_parts"], self.borrow(st, p, op),
                  self.on["part_has_attributes"])
        if ev is None:
            yield from self.refuse(st, p, key, op)
            return
        if self.is_routed(key) and st[1][key[0]][1] == key[1]:   # not one that is carried out again
            self.check_allowed(st, op)
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

    def may_be_born(self, st, ino):
        """Some client's mkdir may still give birth to it."""
        for c, script in enumerate(self.w.scripts):
            for i, op in enumerate(script):
                if ino in born(op):
                    key = (c, i)
                    if i > st[1][c][1]:
                        return st[1][c][0]                  # not asked yet: only a client that lives will
                    q = self.decider(self.sent(st, key) or op)
                    log = st[0][q][LOG]
                    if self.find(log, key):
                        return self.w.home[ino] != q and not any(f[0] == "eff" and f[3][:4] == op[:4] for f in st[0][self.w.home[ino]][LOG])
                    closed = st[0][q][PH] == "O" and key not in dict(st[0][q][OPS]) and (not st[1][c][0] or st[1][c][3][i:i + 1] == ("no",))
                    return not (closed and self.on["unborn_closes"])
        return False
