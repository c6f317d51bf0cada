"""What clients do: ask for leases, answer their programs, push what they have buffered, and greet a new boot of the server."""
from explore import Broken
from state import BOOT, PH, LOG, DUR, EX, SH, REC, SESS, WIN, COLL, RES, ALIVE, CONN, LEASE, BEL, CACHE, DIRTY, KEPT, PEND, I, EIO, SEQ, put, lay


class Clients:
    def client_steps(self, st, c):
        srv, old, cls, ghost, faults = st
        me = cls[c]
        name = "ABC"[c]
        which = self.server_of(st, me[CONN])
        s = st[which] if which is not None else None
        known = s is not None and s[SESS][c] == 1 and s[WIN][c] == 2
        believes = me[BEL] > 0 or not self.on["belief_checked"]

        def ask(want):
            if me[PEND] is None and known and all(k[2] != -1 for k in me[KEPT]):
                return self.with_cl(st, c, put(me, (PEND, (me[CONN], want, self.B, None, None, me[SEQ]))))

        # -- what its program asks
        if me[I] < len(self.scripts[c]):
            op = self.scripts[c][me[I]]
            if op in "awxu":
                if me[LEASE] == 2 and believes:
                    for d in range(self.n):
                        o = cls[d]
                        if d != c and o[ALIVE] and o[LEASE] == 2 and (o[BEL] > 0) and me[BEL] >= 0:
                            raise_ = Broken(f"{name} and {'ABC'[d]} both hold the content exclusively")
                            raise_.in_step = False
                            raise raise_
                    off = len(me[CACHE]) if op == "a" else 0
                    ident = f"{name.lower()}{me[I]}"
                    if op == "x" and me[CACHE] and me[CACHE][0] is not None:
                        def fail():
                            self.seen(ghost, me[CACHE], name)
                            return self.with_cl(st, c, put(me, (I, me[I] + 1)))
                        yield f"{name}: create is EEXIST", fail
                    else:
                        if op == "x":
                            def look():
                                self.seen(ghost, me[CACHE], name)
                            look()
                        g = (ghost[0] + ((ident, op),), ghost[1], ghost[2])
                        new = self.with_cl(st, c, put(me, (CACHE, lay(me[CACHE], op, off, ident)),
                                                      (DIRTY, me[DIRTY] + ((op, off, ident),)), (I, me[I] + 1)))
                        yield f"{name}: {op} acknowledged from the buffer ({ident} at {off})", put(new, (3, g))
                else:
                    yield f"{name}: asks for the exclusive lease", ask(2)
            elif op == "r":
                if me[LEASE] >= 1 and believes:
                    def read():
                        self.seen(ghost, me[CACHE], name + " reads and")
                        return self.with_cl(st, c, put(me, (I, me[I] + 1)))
                    yield f"{name}: reads {self.show(me[CACHE])} from its cache", read
                else:
                    yield f"{name}: asks for a shared lease", ask(1)
            elif op == "s" and known and not me[DIRTY] and s[PH] == "O":
                if all(k[2] == s[BOOT] and k[3] <= s[DUR] for k in me[KEPT]):
                    def fsync():
                        mine = {i for i, _ in ghost[0] if i[0] == name.lower()}
                        there = self.ids_in(s[LOG][:s[DUR]])
                        lost = {i for i in mine if i not in there and i not in ghost[1]}
                        if me[EIO]:
                            if not lost:
                                raise Broken(f"{name}: fsync says EIO and nothing is lost")
                            g = (tuple(x for x in ghost[0] if x[0] not in lost or x[0] in there), ghost[1], ghost[2])
                        else:
                            if lost:
                                raise Broken(f"{name}: fsync says yes and {' '.join(lost)} is not there")
                            g = (ghost[0], ghost[1] | mine, ghost[2])
                        g = (g[0], g[1] | (mine & there), g[2])
                        new = put(self.with_cl(st, c, put(me, (I, me[I] + 1), (EIO, 0), (KEPT, ()))), (3, g))
                        if not any(x[DIRTY] or x[KEPT] for j, x in enumerate(cls) if j != c):
                            self.seen(g, self.content(s[LOG]), f"after {name}'s fsync whoever looks")
                        return new
                    yield f"{name}: fsync returns" + (" EIO" if me[EIO] else " 0"), fsync

        # -- what it does by itself
        reason = me[I] == len(self.scripts[c]) or self.scripts[c][me[I]] == "s" or (s is not None and s[REC] >> c & 1)
        if me[DIRTY] and known and (s[PH] == "O") and reason:
            yield f"{name}: sends its push {self.ids(me[DIRTY])}", self.with_cl(st, c, put(
                me, (KEPT, me[KEPT] + ((me[SEQ], me[DIRTY], -1, -1, None),)), (DIRTY, ()), (SEQ, me[SEQ] + 1)))
        if s is not None and me[KEPT] and s[PH] == "O":
            places = {e[2]: i + 1 for i, e in enumerate(s[LOG]) if e[0] == "op" and e[1] == c}
            kept = tuple(k if k[0] not in places or k[2] == s[BOOT] else (k[0], k[1], s[BOOT], places[k[0]], k[4] if k[4] and self.on["first_answer"] else (s[BOOT], places[k[0]]))
                         for k in me[KEPT])
            if kept != me[KEPT]:
                yield f"{name}: its push is answered", self.with_cl(st, c, put(me, (KEPT, kept)))
            elif me[I] == len(self.scripts[c]) and all(k[2] == s[BOOT] and k[3] <= s[DUR] for k in kept):
                yield f"{name}: settles", self.with_cl(st, c, put(me, (KEPT, ())))
        if self.timed and me[LEASE] and me[BEL] == 0 and me[PEND] is None and known and me[I] < len(self.scripts[c]):
            yield f"{name}: pings", self.with_cl(st, c, put(me, (PEND, (me[CONN], 0, self.B, None, None, 0))))
        p = me[PEND]
        if p and p[3] is not None and (not self.on["drop_old_grants"] or p[0] == me[CONN]):
            bel = p[2] if self.on["from_sending"] else self.B
            if p[1] == 0:
                yield f"{name}: gets the answer to its ping", self.with_cl(st, c, put(me, (BEL, max(me[BEL], bel)), (PEND, None)))
            elif p[5] != me[SEQ] or any(k[2] == -1 for k in me[KEPT]):
                yield f"{name}: drops an answer that is older than its last push", self.with_cl(st, c, put(me, (PEND, None)))
            else:
                cache = p[4]
                dirty = self.placed(me[DIRTY], cache)
                for r in dirty:
                    cache = lay(cache, *r)
                yield (f"{name}: gets the {'exclusive' if p[3] == 2 else 'shared'} lease, and reads {self.show(cache)}",
                       self.with_cl(st, c, put(me, (LEASE, max(me[LEASE], p[3])), (BEL, max(bel, me[BEL])), (CACHE, cache),
                                               (DIRTY, dirty), (PEND, None))))
        if s is not None and s[REC] >> c & 1 and not me[DIRTY]:
            if not self.on["back_after_answer"] or all(k[2] != -1 for k in me[KEPT]):
                new = put(me, (LEASE, 0), (CACHE, None))
                if self.on["recall_voids_grant"] and p and p[1]:
                    new = put(new, (PEND, None))
                # Without the rule what is sent is carried out first, in order.
                if all(any(e[0] == "op" and e[1] == c and e[2] == k[0] for e in s[LOG]) for k in me[KEPT]):
                    ns = put(s, (REC, s[REC] & ~(1 << c)), (SH, s[SH] & ~(1 << c)), (EX, -1 if s[EX] == c else s[EX]))
                    yield f"{name}: gives the recalled lease back", self.with_cl(self.with_srv(st, which, self.heard(ns, c)), c, new)

        if not self.timed and (me[BEL] or me[PEND]) and me[CONN] != srv[BOOT]:
            yield f"{name}: its belief lapses", self.with_cl(st, c, put(me, (BEL, 0), (PEND, p and self.on["from_sending"] and None or (p if not self.on["from_sending"] else None))))
        # -- a new boot
        if me[CONN] != srv[BOOT] and self.answers(srv):
            sess = srv[SESS][c]
            if sess == 1 and srv[PH] == "W":
                if srv[WIN][c] == 0:
                    yield f"{name}: says hello to boot {srv[BOOT]}", self.with_srv(st, 0, put(srv, (WIN, put(srv[WIN], (c, 1)))))
                else:
                    yield f"{name}: is greeted", self.greeted(st, c)
            elif sess == 1 and srv[PH] == "O":             # only where missing ones are not expelled
                new = self.greeted(st, c)
                yield f"{name}: is greeted late", new
        if me[CONN] == srv[BOOT] and srv[WIN][c] == 1 and srv[SESS][c] == 1:
            yield f"{name}: declares ({self.ids(me[DIRTY]) or 'nothing dirty'}; {len(me[KEPT])} resends)", self.declared(st, c)
        told = srv[SESS][c] == 0 or (srv[SESS][c] == 2 and not self.on["gone_when_durable"])
        if told and self.answers(srv):
            yield f"{name}: is told that its session is over", self.gone(st, c)

    def greeted(self, st, c):
        srv, me = st[0], st[2][c]
        new = put(me, (CONN, srv[BOOT]))
        if self.on["drop_old_grants"]:
            new = put(new, (PEND, None))
        elif me[PEND] and me[PEND][3] is None:
            new = put(new, (PEND, None))
        if self.on["greeting_voids"]:
            new = put(new, (LEASE, 0), (BEL, 0), (CACHE, None))
        return self.with_cl(st, c, new)

    def declared(self, st, c):
        srv, me = st[0], st[2][c]
        coll = [(k[4] or (-1, -1)) + (c, k[0], k[1]) for k in me[KEPT]]
        s = put(srv, (WIN, put(srv[WIN], (c, 2))))
        if srv[PH] == "O":                                  # late (only without expel_missing)
            log = srv[LOG]
            for _, _, _, seq, recs in coll:
                if not any(e[0] == "op" and e[1:3] == (c, seq) for e in log):
                    log += (("op", c, seq, self.placed(recs, self.content(log))),)
            s = put(s, (LOG, log))
            if self.on["declare"] and me[DIRTY]:
                s = put(s, (EX, c))
            return self.with_srv(st, 0, self.heard(s, c))
        if self.repair in ("push", "both") and me[DIRTY]:             # promises: sent again, as new operations, before all that is new
            coll.append((-1, -1, c, me[SEQ], me[DIRTY]))
            me = put(me, (KEPT, me[KEPT] + ((me[SEQ], me[DIRTY], -1, -1, None),)), (DIRTY, ()), (SEQ, me[SEQ] + 1))
        # what was answered by a boot sorts by (boot, position); what was not comes last
        coll = [((b if b >= 0 else 1 << 21), p, who, seq, recs) for b, p, who, seq, recs in coll]
        s = put(s, (COLL, tuple(sorted(srv[COLL] + tuple(coll)))))
        if self.on["declare"] and (me[DIRTY] or any(k[2] == -1 for k in me[KEPT])):
            if s[EX] not in (-1, c):
                raise Broken("two declare the content of one file")
            s = put(s, (EX, c))
        if self.repair == "range" and me[DIRTY]:
            s = put(s, (RES, s[RES] + ((c, max(r[1] for r in me[DIRTY]) + 1),)))
        st = self.with_cl(st, c, me)
        return self.with_srv(st, 0, self.heard(s, c))

    def gone(self, st, c):
        srv, me, ghost = st[0], st[2][c], st[3]
        there = self.ids_in(srv[LOG])
        lost = [r[2] for r in me[DIRTY]]
        for k in me[KEPT]:
            ids = [r[2] for r in k[1]]
            lost += ids if not self.on["tombstone"] else [i for i in ids if i not in there]
        log = srv[LOG] + (("begin", c),)
        s = put(srv, (LOG, log), (SESS, put(srv[SESS], (c, 1))), (WIN, put(srv[WIN], (c, 2))), (REC, srv[REC] & ~(1 << c)))
        if self.on["begin_durable"]:
            s = put(s, (DUR, len(log)))
        new = put(me, (CONN, srv[BOOT]), (LEASE, 0), (BEL, 0), (CACHE, None), (DIRTY, ()), (KEPT, ()), (PEND, None),
                  (EIO, 1 if (lost and self.on["eio_kept"]) or me[EIO] else 0))
        g = (ghost[0], ghost[1], ghost[2] | {i for i in lost if i not in there})
        return put(self.with_cl(self.with_srv(st, 0, self.heard(s, c)), c, new), (3, g))
