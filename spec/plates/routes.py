"""Directories with parts, seen from the client: to which part an operation is sent, and when it is sent on.

A client sends an operation upon a split directory either to the home or to the part that a list names, which may be old.
The inodes to which it sent (`stage` while it is not answered, the last part of the answer after) say which plate decides.
"""
from namespace import Broken, base, entries, mode, owner, parts, parts_of, ranges, victim_of
from state import PH, LOG, DUR, GUARDS


def slots(op):
    """Where an operation's directories and the names in them are."""
    return ((1, 2), (3, 4)) if op[0] in ("rename", "exchange") else ((1, 2),)


class Routes:
    def is_routed(self, key):
        """Names in a directory that may be split. Requests that split, fold or remove it go to the home."""
        op = self.w.scripts[key[0]][key[1]]
        return op[0] not in ("fsync", "split", "fold", "list", "stat", "chmod") and len(op) > 2 and any(op[i] in self.w.huge for i, _ in slots(op))

    def sent(self, st, key):
        """The operation with the directories to which its client sent it last; None: not sent yet."""
        if not self.is_routed(key):
            return self.op(key)
        _, index, stage, answers = st[1][key[0]]
        to = stage if key[1] == index else answers[key[1]][3] if len(answers[key[1]]) > 3 else 0
        if not to:
            return self.op(key) if self.op(key)[0] == "look" else None
        op = list(self.op(key))
        for (i, _), d in zip(slots(op), to):
            op[i] = d
        return tuple(op)

    def asked(self, st, key):
        """The same as it begins at its plate: a new file gets its number there, an old one has it."""
        op = self.sent(st, key)
        gone = victim_of(op)
        hint = parts_of(gone, self.row(st, gone)) if gone in self.w.huge and self.on["rmdir_guards_parts"] else ()
        if hint and not self.is_routed(key):
            return op + (hint,)                             # to be checked
        if not self.is_routed(key) or op[0] not in ("create", "unlink", "rename"):
            return op
        i = 5 if op[0] == "rename" else 3
        d, name = op[1:3]
        there = entries(self.row(st, d)).get(name) if self.row(st, d) else None
        ino = f"{op[i]}@{self.w.home[d]}"
        if op[0] != "create" and there and there.split("@")[0] == op[i]:
            ino = there
        return op[:i] + (ino if ino in self.w.home else op[i],) + op[i + 1:]

    def elsewhere(self, st, p, op, have, only_held):
        """Directories to which this operation belongs, if not where it was sent. As far as what is held shows it."""
        to = [op[i] for i, _ in slots(op)]
        for n, (i, name) in enumerate(slots(op)):
            d = op[i]
            if base(d) not in self.w.huge or d not in have and (only_held or self.w.home[d] != p):
                continue
            row = self.row(st, d) if self.w.home[d] == p else have[d]
            if row is None and ":" in d:
                to[n] = base(d)
            elif row and (self.on["part_knows_range"] or ":" not in d):
                to[n] = owner(d, row, op[name])
        return tuple(to) if to != [op[i] for i, _ in slots(op)] else None

    def is_fold_open(self, st, p, op):
        """A fold that may still be lost has brought one of the names here."""
        plate = st[0][p]
        late = [f[2] for f in plate[LOG][plate[DUR]:] if f[0] == "op" and f[2][0] == "fold"]
        return any(ev[1] == op[i] and ev[2] <= op[name] < (ev[5] or "~") for ev in late for i, name in slots(op))

    def is_list_open(self, st, p, op):
        """Which parts this operation changes depends on a fold that may still be lost."""
        home = op[1] if op[0] == "chmod" else victim_of(op)
        plate = st[0][p]
        return any(f[0] == "op" and f[2][0] == "fold" and f[2][1] == home for f in plate[LOG][plate[DUR]:])

    def check_refused(self, st, op):
        """Nothing is refused that could have been."""
        i, name = slots(op)[0]
        d, name = base(op[i]), op[name]
        home = self.row(st, d)
        row = self.row(st, owner(d, home, name)) if home else None
        if row and mode(home) == "open" and (name in entries(row)) != (op[0] in ("create", "mkdir", "link")) and not (op[0] == "rename" and op[6]):
            raise Broken(f"{op} is refused, and {name} is {'there' if name in entries(row) else 'not there'}")

    def check_allowed(self, st, op):
        """Nothing is changed in a directory that an answered request has closed."""
        for k, script in enumerate(self.w.scripts):
            for j, other in enumerate(script):
                was = st[1][k][3][j:j + 1]
                if other[0] == "chmod" and st[1][k][0] and was and was[0] != "no" and other[1] in [base(op[i]) for i, _ in slots(op)]:
                    raise Broken(f"{op} is decided after {other} was answered")

    def redirect(self, st, p, key, op, to):
        if key in self.lost(st, p):
            raise Broken(f"{key} {op} was answered with success and is sent on to {to} when it is sent again")
        new = self.unguard(self.set_op(st, p, key, None), p, lambda g: g[1:3] == (p, key))
        alive, i, stage, answers = new[1][key[0]]
        if alive and i == key[1] and self.sent(st, key) and stage:
            new = self.client(new, key[0], (alive, i, to, answers))
        yield f"plate {p} sends {key} {op} on to {', '.join(to)}", new

    def route(self, st, c):
        """The client chooses to whom it sends: by a list that it has, by none; and again only if the rule is left out."""
        _, i, stage, answers = st[1][c]
        op = self.op((c, i))
        ways = [()]
        for d, name in ((op[j], op[k]) for j, k in slots(op)):
            known = {d}
            if d in self.w.huge and self.row(st, d):
                known.add(owner(d, self.row(st, d), name))
            for j, a in enumerate(answers):                 # its own mkdir is answered with the list
                made = self.op((c, j))
                if a != "no" and made[0] == "mkdir" and made[3] == d and len(made) > 4:
                    known.add(owner(d, ("dir", None, (), made[4]), name))
            if d in self.w.huge:
                known |= {x for a in answers if a != "no" and len(a) > 3 for x in a[3] if base(x) == d}
            ways = [way + (x,) for way in ways for x in sorted(known)]
        if stage and self.on["keeps_plate"]:
            return
        for way in ways:
            if way != stage:
                again = "again " if stage else ""
                yield f"client {c} sends {op} {again}to {', '.join(way)}", self.client(st, c, (True, i, way, answers))

    def check_seen(self, st, c, op):
        """A look at a name shows what was answered, if nobody contradicts."""
        d, name = op[1:3]
        row = self.row(st, d)
        there = bool(row and name in entries(row))
        gives, takes, first = [], [], any(name in entries(self.w.rows[x]) for x in self.w.rows if x == base(d))
        for k, script in enumerate(self.w.scripts):
            for j, other in enumerate(script):
                was = st[1][k][3][j:j + 1]
                done = was and was[0] != "no" and st[1][k][0]
                if other[0] in ("create", "mkdir", "link") and other[1:3] == (base(d), name) or \
                        other[0] == "rename" and other[3:5] == (base(d), name):
                    gives.append(done)
                if other[0] in ("unlink", "rmdir") and other[1:3] == (base(d), name) or \
                        other[0] == "rename" and other[1:3] == (base(d), name):
                    takes.append(done)
                if other[0] == "rmdir" and other[3] == base(d):
                    takes.append(False)
        if not there and not takes and (first or any(gives)):
            raise Broken(f"client {c} looks for {name} in {d} and does not find it")
        if there and not gives and any(takes):
            raise Broken(f"client {c} looks for {name} in {d} and finds it, which was taken away")

    def list_on(self, st, c):
        """The next step of a readdir: all names from the cursor to the end of the range, or on to where the cursor belongs."""
        _, i, stage, answers = st[1][c]
        home = self.op((c, i))[1]
        d, cursor, seen = stage or (home, "", ())
        p, row = self.w.home[d], self.row(st, d)
        if st[0][p][0] != "O" or any(g[0] == d and g[1] != p for g in st[0][p][4]) or row is None and self.may_be_born(st, d):
            return
        there = owner(d, row, cursor) if row else base(d)
        if there != d:
            yield f"client {c} reads on in {there}", self.client(st, c, (True, i, (there, cursor, seen), answers))
            return
        end = row[4][1] if ":" in d else min([f for f, _ in parts(row) if f > cursor], default="~")
        seen += tuple(name for name in entries(row) if (cursor if self.on["list_by_hash"] else "") <= name < end)
        if end != "~":
            yield f"client {c} has read {d} up to {end}", self.client(st, c, (True, i, (d, end, seen), answers))
            return
        self.check_all(c, home, seen)
        yield f"client {c} has listed {home}", self.answer(st, (c, i), ("ok", 0, 0))

    def stat_on(self, st, c):
        """The next step of a stat: it sums over the home first, and then over the parts of the list that it found there, in any order."""
        _, i, stage, answers = st[1][c]
        home = self.op((c, i))[1]
        todo, seen = stage or (((home, ()),), ())
        for d, between in todo:
            p, row = self.w.home[d], self.row(st, d)
            if st[0][p][PH] != "O" or any(g[0] == d and g[1] != p for g in st[0][p][GUARDS]) or row is None and self.may_be_born(st, d):
                continue
            if between and (row is None or row[4] != between) and self.on["sum_by_range"]:
                yield f"client {c} begins its sum again, because {d} has changed", self.client(st, c, (True, i, 0, answers))
                continue
            rest = tuple(x for x in todo if x[0] != d) + tuple(x for x in ranges(parts(row)) if x[0] != home)
            names = tuple(sorted(seen + tuple(entries(row) if row else ())))
            if rest:
                yield f"client {c} sums {d}", self.client(st, c, (True, i, (rest, names), answers))
                continue
            self.check_all(c, home, names)
            yield f"client {c} has summed {home}", self.answer(st, (c, i), ("ok", 0, 0))

    def check_all(self, c, home, seen):
        """A readdir or a sum has each name once, and all names that no client changes."""
        changed = {op[k] for script in self.w.scripts for op in script for k in (2, 4) if op[0] != "split" and len(op) > k}
        stay = {name for x, r in self.w.rows.items() if base(x) == home for name in entries(r)} - changed
        if len(set(seen)) < len(seen) or not stay <= set(seen):
            raise Broken(f"client {c} looks through {home} and sees {', '.join(seen)}")
