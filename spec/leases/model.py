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

from clients import Clients
from explore import Broken, explore
from faults import Faults
from rules import RULES
from scenarios import SCENARIOS
from server import Server
from state import BOOT, PH, LOG, DUR, HEARD, FENCE, ETCD, ALIVE, DIRTY, KEPT, I, put, lay


class Model(Clients, Server, Faults):
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

    def ids(self, recs):
        return " ".join(r[2] for r in recs)


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
