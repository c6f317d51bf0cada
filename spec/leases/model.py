#!/usr/bin/env python3
"""Leases over a restart: clients that buffer under leases, a server that restarts or is replaced (see README.md).

    python3 model.py                   every scenario with all rules; a trace is printed where one breaks
    python3 model.py SCENARIO [RULE]   one scenario, or one without RULE: prints the shortest trace that breaks
    python3 model.py --repair R SCENARIO   R: lease (declared, the default) | none | push | range | rebase

The state is one object of cells. As a file: `a` appends one record, `w` writes cell 0, `r` reads all, `s` is fsync. As a
directory of one name: `x` creates it exclusively, `u` removes it; under --repair push the buffered operations are sent again.
Every step is optional, so delay, slowness and partition are steps that are not taken; time passes by ticks. A request for a
lease and its answer are in flight apart (`pend`). An operation is sent (and kept), carried out, and answered in three steps.
"""
import sys
from itertools import combinations

from explore import Broken, explore

RULES = {
    "declare": "clients declare dirty content in the window, and a declarer counts as the holder of the exclusive lease",
    "all_declared": "the window ends when every known session has declared, not when it was greeted",
    "expel_missing": "a session that has not declared when the window's time is over is lost",
    "window_bounded": "the window's time is bounded",
    "end_durable": "what an ended session held is free when its end is durable",
    "window_end_durable": "the window ends when the ends of the sessions that did not come back are durable",
    "window_longer": "W >= B and the drift",
    "session_longer": "a session is ended for silence only after B and the drift, counted from the receipt",
    "belief_checked": "a client answers from its cache only while its belief lasts",
    "from_sending": "belief counts from the sending of the request that was answered",
    "greeting_voids": "a greeting of another boot voids all leases of the client, also that under which it is dirty",
    "drop_old_grants": "a grant counts only on the connection on which it was asked",
    "recall_voids_grant": "a grant that was under way when the client obeyed a recall is void",
    "back_after_answer": "a client gives a recalled lease back when its pushes are answered, not when they are sent",
    "resends_in_order": "answered operations are carried out again in the order of their positions, before unanswered ones",
    "first_answer": "a resend is ordered by its first answer (boot, position), not by that of a later boot",
    "resends_first": "resends are carried out before anything new",
    "resends_pass": "resends of answered operations pass declared leases: they recall no one",
    "fence_two_thirds": "a server that cannot renew its lease answers nothing after two thirds of it, by its own clock, from the sending",
    "gone_when_durable": "a client learns that its session is over only when that end is durable",
    "begin_durable": "a new session is answered when its beginning is durable",
    "tombstone": "a client whose session is over learns which of its operations were carried out",
    "eio_kept": "a client that lost buffered or unfinished work says so at the next fsync",
    "push_holder": "a push is carried out only while its sender counts as the holder; else it is refused and lost: EIO",
    "relative": "the server places a buffered append when it carries out the push",
}
OPTIONAL = {"relative", "push_holder"}

# srv: index names
BOOT, PH, LOG, DUR, EX, SH, REC, SESS, HEARD, WT, WIN, COLL, FENCE, ETCD, RES = range(15)
# client
ALIVE, CONN, LEASE, BEL, CACHE, DIRTY, KEPT, PEND, I, EIO, SEQ = range(11)


def put(t, *pairs):
    t = list(t)
    for k, v in pairs:
        t[k] = v
    return tuple(t)


def lay(content, kind, off, ident):
    """Content after one record."""
    c = list(content)
    while len(c) <= off:
        c.append(None)
    c[off] = None if kind == "u" else ident
    if kind in "xu":
        c = c[:1]
    return tuple(c)


class Model:
    def __init__(self, scripts, crashes=1, deaths=0, zombies=0, drift=0, without=(), repair="lease", strict=False, B=1, W=None,
                 S=None, timed=False, silence=True):
        self.scripts, self.budget = scripts, (crashes, deaths, zombies, drift)
        self.n = len(scripts)
        self.repair, self.strict, self.timed, self.silence = repair, strict, timed, silence
        self.on = {r: r not in without for r in RULES}
        if repair not in ("lease", "both"):
            self.on["declare"] = False
        self.B = B
        self.W = (B + 1 if self.on["window_longer"] else B) if W is None else W
        self.S = (B + 1 if self.on["session_longer"] else B) if S is None else S
        self.memo = {}

    def start(self):
        n = self.n
        srv = (0, "O", (), 0, -1, 0, 0, (1,) * n, (self.S,) * n, 0, (2,) * n, (), -1, -1, ())
        cl = (1, 0, 0, 0, None, (), (), None, 0, 0, 0)
        return (srv, None, (cl,) * n, ((), frozenset(), frozenset()), self.budget)

    # ---- content --------------------------------------------------------------------------------------------------
    def content(self, log):
        got = self.memo.get(log)
        if got is None:
            if not log:
                return ()
            got = self.content(log[:-1])
            if log[-1][0] == "op":
                for rec in log[-1][3]:
                    got = lay(got, *rec)
            self.memo[log] = got
        return got

    def placed(self, recs, content):
        """Records with their places, as the server carries them out."""
        if not self.on["relative"] or self.repair == "range":
            return recs
        out = []
        for kind, off, ident in recs:
            if kind == "a":
                off = len(content)
            content = lay(content, kind, off, ident)
            out.append((kind, off, ident))
        return tuple(out)

    def spec(self, acked, gone, holes):
        c = ()
        for ident, kind in acked:
            dead = ident in gone
            if kind == "a":
                if not dead:
                    c = c + (ident,)
                elif holes:
                    c = c + (None,)
            elif not dead:
                c = lay(c, kind, 0, ident)
        return c

    def norm(self, c):
        c = list(c)
        while c and c[-1] is None:
            c.pop()
        return tuple(c)

    def allowed(self, ghost):
        got = self.memo.get(ghost)
        if got is None:
            acked, safe, exc = ghost
            got = set()
            ids = [i for i, _ in acked if i in exc and i not in safe]
            for k in range(len(ids) + 1):
                for gone in combinations(ids, k):
                    got.add(self.norm(self.spec(acked, gone, False)))
                    if not self.strict:
                        got.add(self.norm(self.spec(acked, gone, True)))
            self.memo[ghost] = got
        return got

    def seen(self, ghost, content, who):
        if self.norm(content) not in self.allowed(ghost):
            raise Broken(f"{who} sees {self.show(content)}; acknowledged, in order: "
                         f"{' '.join(k + ':' + i for i, k in ghost[0])}"
                         + (f"; may be lost: {' '.join(sorted(ghost[2]))}" if ghost[2] else ""))

    @staticmethod
    def show(content):
        return "[" + " ".join("." if x is None else x for x in content) + "]"

    def ids_in(self, log):
        return {r[2] for e in log if e[0] == "op" for r in e[3]}

    # ---- checks ---------------------------------------------------------------------------------------------------
    def check(self, st):
        pass

    def is_done(self, st):
        srv, old, cls, ghost, _ = st
        return srv[PH] == "O" and all(not c[ALIVE] or (c[I] == len(s) and not c[DIRTY] and not c[KEPT])
                                      for c, s in zip(cls, self.scripts))

    def check_done(self, st):
        srv, _, cls, ghost, _ = st
        try:
            self.seen(ghost, self.content(srv[LOG]), "whoever looks in the end")
        except Broken as why:
            why.in_step = False
            raise

    # ---- steps ----------------------------------------------------------------------------------------------------
    def server_of(self, st, conn):
        srv, old = st[0], st[1]
        if conn == srv[BOOT]:
            return 0 if self.answers(srv) else None
        if old and conn == old[BOOT]:
            return 1 if self.answers(old) else None
        return None

    @staticmethod
    def answers(s):
        return s[FENCE] != 0 and s[PH] != "X"

    def with_srv(self, st, which, s):
        return put(st, (which, s))

    def with_cl(self, st, c, cl):
        return put(st, (2, put(st[2], (c, cl))))

    def heard(self, s, c):
        return put(s, (HEARD, put(s[HEARD], (c, self.S))))

    def steps(self, st):
        srv, old, cls, ghost, faults = st
        for c in range(self.n):
            if cls[c][ALIVE]:
                yield from self.client_steps(st, c)
        for which in (0, 1):
            s = st[which]
            if s and self.answers(s):
                yield from self.server_steps(st, which)
        if srv[ETCD] == 0:
            yield "TAKE-OVER by the new server", self.reboot(st, self.reborn(srv, srv[DUR]), put(srv, (ETCD, -1)), st[4])
        yield from self.ticks(st)

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

    def ids(self, recs):
        return " ".join(r[2] for r in recs)

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

    # ---- server ---------------------------------------------------------------------------------------------------
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

    # ---- time -----------------------------------------------------------------------------------------------------
    def tick(self, st, slow):
        srv, old, cls, ghost, faults = st
        d = lambda x: x - 1 if x > 0 else x
        ncl = []
        for c, me in enumerate(cls):
            if not me[ALIVE] or slow == c:
                ncl.append(me)
                continue
            me = put(me, (BEL, d(me[BEL])))
            if me[PEND]:
                me = put(me, (PEND, put(me[PEND], (2, d(me[PEND][2])))))
            ncl.append(me)

        def stick(s):
            return s and put(s, (HEARD, tuple(d(h) if self.silence and (s[REC] or h < self.S) else h for h in s[HEARD])), (WT, d(s[WT])), (ETCD, d(s[ETCD])),
                             (FENCE, s[FENCE] if slow == "server" else d(s[FENCE])))
        new = (stick(srv), stick(old), tuple(ncl), ghost, faults)
        return new

    def ticks(self, st):
        if not self.timed:
            return
        yield "tick", self.tick(st, None)
        if st[4][3]:
            left = put(st[4], (3, st[4][3] - 1))
            for c in range(self.n):
                if st[2][c][ALIVE] and (st[2][c][BEL] or st[2][c][PEND]):
                    yield f"tick ({'ABC'[c]}'s clock is slow)", put(self.tick(st, c), (4, left))
            if st[0][FENCE] > 0:
                yield "tick (the old server's clock is slow)", put(self.tick(st, "server"), (4, left))

    # ---- faults ---------------------------------------------------------------------------------------------------
    def reborn(self, s, cut):
        log = s[LOG][:cut]
        sess = [1] * self.n
        for e in log:
            if e[0] in ("end", "begin"):
                sess[e[1]] = 0 if e[0] == "end" else 1
        begun = {e[1] for e in log if e[0] == "begin"}
        return (s[BOOT] + 1, "W", log, cut, -1, 0, 0, tuple(sess), (self.S,) * self.n, self.W, (0,) * self.n, (), -1, -1, ())

    def reboot(self, st, new, old, left):
        """A new boot that knows of the end of a session: what that had not pushed is lost."""
        ghost, exc = st[3], st[3][2]
        there = self.ids_in(new[LOG])
        for c in range(self.n):
            if new[SESS][c] == 0:
                exc = exc | {i for i, _ in ghost[0] if i[0] == "abc"[c] and i not in there}
        return put(st, (0, new), (1, old), (3, (ghost[0], ghost[1], exc)), (4, left))

    def faults(self, st):
        srv, old, cls, ghost, (crashes, deaths, zombies, drift) = st
        if crashes and srv[FENCE] == -1:
            left = (crashes - 1, deaths, zombies, drift)
            yield f"CRASH of the server, its last {len(srv[LOG]) - srv[DUR]} lost", self.reboot(st, self.reborn(srv, srv[DUR]), None, left)
            if srv[DUR] < len(srv[LOG]):
                yield f"orderly RESTART of the server", self.reboot(st, self.reborn(srv, len(srv[LOG])), None, left)
        if zombies and srv[FENCE] == -1:
            fence = getattr(self, "F", 2 if self.on["fence_two_thirds"] else 6)
            yield "the server can no longer renew its lease (3 ticks)", put(st, (0, put(srv, (FENCE, fence), (ETCD, 3))), (4, (crashes, deaths, zombies - 1, drift)))
        if deaths:
            for c in range(self.n):
                if cls[c][ALIVE]:
                    name = "abc"[c]
                    exc = {i for i, _ in ghost[0] if i[0] == name and i not in ghost[1]}
                    dead = (0, -1, 0, 0, None, (), (), None, len(self.scripts[c]), 0, 0)
                    yield f"{name.upper()} DIES", put(self.with_cl(st, c, dead), (3, (ghost[0], ghost[1], ghost[2] | exc)),
                                                     (4, (crashes, deaths - 1, zombies, drift)))


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


def run(name, without=(), seconds=60, limit=3_000_000, **over):
    args = dict(SCENARIOS[name])
    args.update(over)
    return explore(Model(without=without, **args), limit=limit, seconds=seconds)


if __name__ == "__main__":
    argv = sys.argv[1:]
    over = {}
    if argv[:1] == ["--repair"]:
        over["repair"] = argv[1]
        argv = argv[2:]
    names = [argv[0]] if argv and argv[0] != "all" else list(SCENARIOS)
    for name in names:
        n, t, why = run(name, without=tuple(argv[1:]), **over)
        print(f"{name:9} {n:8} states {t:9} transitions  {'ok' if why is None else why[0]}", flush=True)
        if why and why[1]:
            for i, label in enumerate(why[1]):
                print(f"    {i + 1:2} {label}")
