"""What clients do: one operation after the other; and what a look must show."""
from namespace import Broken, entries, touched
from state import READS, PH, BOOT, LOG, DUR, GUARDS


class Clients:
    def client_steps(self, st, c):
        alive, i, stage, answers = st[1][c]
        if not alive or i == len(self.w.scripts[c]):
            return
        if self.op((c, i))[0] in ("list", "stat"):
            yield from self.list_on(st, c) if self.op((c, i))[0] == "list" else self.stat_on(st, c)
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
