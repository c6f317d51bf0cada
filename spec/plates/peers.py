"""What plates owe each other: greetings after a restart, guards that end, and grants that arrive."""
from namespace import TOKEN, guarded, touched
from state import ASKING, PH, BOOT, LOG, OPS, MET, PLACES


class Peers:
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

    def receive(self, st, m):
        q, qboot, p, pboot, key, r, value = m
        new = st[:2] + (tuple(x for x in st[2] if x != m),) + st[3:]
        have = dict(st[0][p][OPS]).get(key)
        if (st[0][p][BOOT] != pboot or have is None or r in dict(have)
                or self.on["drop_old_grants"] and st[0][p][MET][q] != qboot):
            yield f"plate {p} drops a late grant of {r}", new
        else:
            yield f"plate {p} receives {r} for {key}", self.set_op(new, p, key, tuple(x for x in have if x != (ASKING, r)) + ((r, value),))
