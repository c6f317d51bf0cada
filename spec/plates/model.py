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

The README's table says which file holds which part.
"""
import argparse
import sys

from clients import Clients
from deciders import Deciders
from explore import explore
from handover import Handover
from namespace import TOKEN, Broken, check_tree
from peers import Peers
from routes import Routes
from rules import RULES
from state import State, READS, ASKED, ASKING, IN_ORDER, PH, LOG, DUR, GUARDS, OPS, MET


class World:
    """A scenario: plates, inodes, first rows, scripts of clients, budgets of faults."""

    def __init__(self, homes, rows, scripts, crashes, deaths, breaks=0, token_last=False, leases=None, huge=(), blocks=(), moves=0, takeover=False):
        self.args = (homes, rows, scripts, crashes, deaths, breaks)
        self.token_last, self.leases = token_last, leases or {}     # leases: row → the client that may cache it
        self.home = dict(homes)
        self.home[TOKEN], self.home[ASKED], self.home[ASKING], self.home[IN_ORDER] = 0, -1, -1, -1
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


class Model(State, Deciders, Peers, Clients, Routes, Handover):
    def start(self):
        w = self.w
        plate = ("O", 0, (), 0, (), (), (0,) * w.n, ())
        return ((plate,) * w.n, tuple((True, 0, 0, ()) for _ in w.scripts), (), (w.crashes, w.deaths, w.breaks, w.moves, ()))

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
