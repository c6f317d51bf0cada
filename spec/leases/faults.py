"""Ticks of the clocks, and what goes wrong: crashes, restarts, deaths of clients, a server that loses its own lease."""
from state import BOOT, LOG, DUR, REC, SESS, HEARD, WT, FENCE, ETCD, ALIVE, BEL, PEND, put


class Faults:
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
