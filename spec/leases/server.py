"""What the server does: grant, recall, carry out pushes, end silent sessions, and end the window after a restart."""
from explore import Broken
from state import BOOT, PH, LOG, DUR, EX, SH, REC, SESS, HEARD, WT, WIN, COLL, RES, ALIVE, CONN, LEASE, BEL, CACHE, DIRTY, KEPT, PEND, EIO, put


class Server:
    def end(self, s, c):
        return put(s, (LOG, s[LOG] + (("end", c),)), (SESS, put(s[SESS], (c, 2))))

    def release(self, st, which, c):
        """An ended session's holdings are free; what of its data is not here is lost."""
        s, ghost = st[which], st[3]
        there = self.ids_in(s[LOG])
        name = "abc"[c]
        exc = {i for i, _ in ghost[0] if i[0] == name and i not in there}
        s = put(s, (SESS, put(s[SESS], (c, 0))), (EX, -1 if s[EX] == c else s[EX]), (SH, s[SH] & ~(1 << c)),
                (REC, s[REC] & ~(1 << c)), (RES, tuple(r for r in s[RES] if r[0] != c)))
        return put(self.with_srv(st, which, s), (3, (ghost[0], ghost[1], ghost[2] | exc)))

    def server_steps(self, st, which):
        s, cls, ghost = st[which], st[2], st[3]
        tag = "" if which == 0 else "old "
        if s[DUR] < len(s[LOG]) and which == 0:
            yield "server: commits", self.with_srv(st, which, put(s, (DUR, len(s[LOG]))))
        if s[PH] == "W":
            yield from self.window_end(st)
            return
        for c in range(self.n):
            me, name = cls[c], "ABC"[c]
            others = [d for d in range(self.n) if d != c and ((s[EX] == d) or s[SH] >> d & 1)]
            writers = [d for d in range(self.n) if d != c and s[EX] == d]
            p = me[PEND]
            if p and p[3] is None and p[0] == s[BOOT] and s[SESS][c] == 1 and me[CONN] == s[BOOT]:
                s2 = self.heard(s, c)
                block = {0: [], 1: writers, 2: others}[p[1]]
                res = max([u for d, u in s[RES] if d != c], default=0)
                if block:
                    rec = s2[REC]
                    for d in block:
                        rec |= 1 << d
                    yield f"{tag}server: recalls from {' '.join('ABC'[d] for d in block)} for {name}", \
                        self.with_srv(st, which, put(s2, (REC, rec)))
                elif p[1] == 1 and res:
                    pass                                    # reads of reserved ranges wait
                elif not s[REC] >> c & 1:
                    content = self.content(s[LOG])
                    content += (None,) * (res - len(content))
                    mode = max(p[1], 2 if s[EX] == c else 0) if p[1] else 0
                    if mode == 2:
                        s2 = put(s2, (EX, c), (SH, s2[SH] & ~(1 << c)))
                    elif mode == 1:
                        s2 = put(s2, (SH, s2[SH] | 1 << c))
                    yield (f"{tag}server: grants {name} {'nothing (ping)' if not p[1] else ('exclusive' if mode == 2 else 'shared')}",
                           self.with_cl(self.with_srv(st, which, s2), c, put(me, (PEND, (p[0], p[1], p[2], mode, content if p[1] else None, p[5])))))
            # operations, in order
            if me[CONN] == s[BOOT] and s[SESS][c] == 1 and s[WIN][c] == 2:
                mine = {e[2] for e in s[LOG] if e[0] == "op" and e[1] == c}
                k = next((k for k in me[KEPT] if k[0] not in mine and k[2] != s[BOOT]), None)
                if k:
                    if others and s[EX] != c and self.on["push_holder"] and self.repair in ("lease", "none", "both"):
                        ids = frozenset(r[2] for r in k[1])
                        yield (f"{tag}server: refuses {name}'s push {self.ids(k[1])}: it is not the holder",
                               put(self.with_cl(st, c, put(me, (KEPT, tuple(x for x in me[KEPT] if x != k)), (EIO, 1), (LEASE, 0), (CACHE, None))),
                                   (3, (ghost[0], ghost[1], ghost[2] | ids))) if self.repair == "none" else
                               self.refused(name, k))
                    elif others and s[EX] != c and not any(r[0] == c for r in s[RES]):
                        rec = s[REC]
                        for d in others:
                            rec |= 1 << d
                        yield f"{tag}server: recalls from {' '.join('ABC'[d] for d in others)} for {name}'s push", \
                            self.with_srv(st, which, put(self.heard(s, c), (REC, rec)))
                    else:
                        recs = self.placed(k[1], self.content(s[LOG])) if self.repair != "rebase" else self.rebased(k[1], s)
                        s2 = put(self.heard(s, c), (LOG, s[LOG] + (("op", c, k[0], recs),)), (RES, tuple(r for r in s[RES] if r[0] != c)))
                        yield f"{tag}server: carries out {name}'s push {self.ids(k[1])} at {recs[0][1]}", self.with_srv(st, which, s2)
            silent = (s[HEARD][c] == 0 and self.silence) if self.timed else not (me[ALIVE] and me[CONN] == s[BOOT])
            if which == 0 and s[SESS][c] == 1 and silent and s[REC] >> c & 1:
                new = self.with_srv(st, 0, self.end(s, c))
                if not self.on["end_durable"]:
                    new = self.release(new, 0, c)
                yield f"server: ends {name}'s session for its silence", new
            if s[RES] and which == 0 and s[SESS][c] == 1 and silent and any(r[0] == c for r in s[RES]):
                yield f"server: ends {name}'s session for its silence", self.with_srv(st, 0, self.end(s, c))
            if s[SESS][c] == 2 and which == 0:
                at = max(i for i, e in enumerate(s[LOG]) if e == ("end", c)) + 1
                if at <= s[DUR]:
                    yield f"server: frees what {name} held", self.release(st, 0, c)

    def refused(self, name, k):
        def step():
            raise Broken(f"{name} lives, its session goes on, and its push {self.ids(k[1])} is refused")
        return step

    def rebased(self, recs, s):
        on, self.on["relative"] = self.on["relative"], True
        out = self.placed(recs, self.content(s[LOG]))
        self.on["relative"] = on
        return out

    def window_end(self, st):
        s, cls = st[0], st[2]
        known = [c for c in range(self.n) if s[SESS][c] == 1]
        back = lambda c: s[WIN][c] == 2 or (not self.on["all_declared"] and s[WIN][c] == 1 and not cls[c][DIRTY] and not cls[c][KEPT])
        is_all = all(back(c) for c in known)
        if not is_all and not self.on["window_bounded"]:
            return
        if not is_all and self.timed and s[WT] > 0:
            return
        if not is_all and not self.timed and any((cls[c][BEL] or (self.on["from_sending"] and cls[c][PEND])) and cls[c][ALIVE] and cls[c][CONN] != s[BOOT] for c in known):
            return
        new = st
        out = []
        if self.on["expel_missing"]:
            for c in known:
                if not back(c):
                    new = self.with_srv(new, 0, self.end(new[0], c))
                    out.append("ABC"[c])
            if self.on["window_end_durable"] and out:
                new = self.with_srv(new, 0, put(new[0], (DUR, len(new[0][LOG]))))
            for c in known:
                if not back(c):
                    new = self.release(new, 0, c)
        s = new[0]
        log, coll = s[LOG], s[COLL]
        if not self.on["resends_in_order"]:
            coll = tuple(sorted(coll, key=lambda t: (t[2], t[3])))
        later = ()
        for b, p, c, seq, recs in coll:
            if s[SESS][c] != 1:
                continue
            if any(e[0] == "op" and e[1:3] == (c, seq) for e in log):
                continue
            if not self.on["resends_first"]:
                continue                                    # carried out later, as anything else
            if s[EX] not in (-1, c) and (not self.on["resends_pass"] or b >= 1 << 21):
                continue                                    # it would recall the declarer: comes with the new ones
            if b >= 1 << 21 and s[EX] not in (-1, c):
                continue
            log += (("op", c, seq, self.placed(recs, self.content(log)) if self.repair != "rebase" else recs),)
        s = put(s, (LOG, log), (COLL, ()), (PH, "O"), (WT, 0), (HEARD, (self.S,) * self.n))
        new = self.with_srv(new, 0, s)
        # What was answered by a former boot and not carried out again yet goes on as unanswered.
        yield ("server: the window ends" + (f"; {' '.join(out)} did not come" if out else "")
               + (f"; carries out again: {' '.join(self.ids(e[3]) for e in log[len(new[0][LOG]) - len(log) + len(st[0][LOG]):] if e[0] == 'op')}" if coll else "")), new
