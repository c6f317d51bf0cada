"""The part of the model that the project's checks run: scenarios that must hold with all rules, and rules that must be missed.

    python3 check.py        ends with 0 if everything is as it should be
"""
import sys
import time

from explore import explore
from model import Model, World
from scenarios import scenarios

# Small enough for every run of the checks; `python3 model.py` runs the others.
HOLDS = ("unlink-rename", "look", "late-grant", "exchange-twice", "exchange-loop", "exchange-crossing", "ring", "split", "split-again",
         "fold", "part-rmdir4", "part-crossing", "list", "split-in", "split-mkdir2", "part-rmdir-mkdir",
         "fold-piece-create", "fold-piece-list", "born-mkdir", "born-fold", "born-list", "born-rmdir4", "over-parts4", "chmod-look",
         "chmod-split", "chmod-split-part", "split-link", "stat", "stat-piece", "clone-again", "move-rmdir", "move-emptied", "taken-look", "taken-rmdir")
# Rule left out, scenario that breaks then.
BREAKS = (
    ("own_rows_in_order", "unlink-rename"),
    ("gives_way", "unlink-rename"),
    ("effect_durable", "mkdir"),
    ("guards_survive_decider", "unlink-link"),
    ("old_guards_fall", "unlink-rename"),
    ("drop_old_grants", "late-grant"),
    ("reads_wait", "look"),
    ("unborn_parks", "mkdir"),
    ("unborn_closes", "mkdir"),
    ("leases_back_at_once", "lease"),
    ("walk_reads_guarded", "crossing-last"),
    ("replan_each_guard", "born-moved"),
    ("token_durable", "crossing"),
    ("exchange_both_ways", "exchange-loop"),
    ("token", "exchange-crossing"),
    ("keeps_plate", "split-again"),
    ("look_again", "fold"),
    ("list_at_decision", "split-again"),
    ("list_by_hash", "list"),
    ("rmdir_guards_parts", "part-rmdir"),
    ("parts_in_order", "split-rmdir-rename"),
    ("again_after_return", "split-rmdir-rename"),
    ("hint_dropped", "split-rmdir"),
    ("fold_guards", "fold"),
    ("fold_durable", "fold-piece-create"),
    ("part_knows_range", "fold-piece-create"),
    ("unborn_parks", "born"),
    ("unborn_closes", "born-two"),
    ("look_again", "born-fold"),
    ("rmdir_guards_parts", "born-rmdir4"),
    ("rmdir_guards_parts", "over-parts4"),
    ("chmod_guards_parts", "chmod"),
    ("part_has_attributes", "chmod-split"),
    ("reads_wait", "chmod-look"),
    ("list_durable", "fold-chmod"),
    ("asked_first", "chmod-rename"),
    ("list_at_decision", "part-exchange"),
    ("keeps_plate", "split-link"),
    ("sum_by_range", "stat"),
    ("lent_by_source", "clone-of-clone"),
    ("kept_while_lent", "clone-of-clone"),
    ("close_before_claim", "move-emptied"),
    ("takeover_boot", "taken-late-grant"),
    ("takeover_guards", "move-rmdir"),
    ("zombie_silent", "taken-look"),
    ("window_moves", "move-look"),
)


def main():
    begun, wrong = time.time(), 0
    worlds = scenarios(World)
    for name in HOLDS:
        states, _, why = explore(Model(worlds[name]))
        print(f"{name}: {states} states, {'holds' if why is None else why[0]}", flush=True)
        wrong += why is not None
    for rule, name in BREAKS:
        states, _, why = explore(Model(worlds[name], (rule,)))
        missed = why is not None and why[0] != "LIMIT"
        print(f"{name} without {rule}: {states} states, {why[0] if missed else 'NOT MISSED'}", flush=True)
        wrong += not missed
    print(f"{len(HOLDS)} scenarios and {len(BREAKS)} rules in {time.time() - begun:.0f} s, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
