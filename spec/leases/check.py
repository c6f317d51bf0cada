"""The part of the model that the gate runs: scenarios that must hold with all rules, and rules that must be missed.

    python3 check.py        ends with 0 if everything is as it should be
"""
import sys
import time

import model

# Small enough for every run of the checks; `python3 model.py` runs the others.
HOLDS = ("append", "hole", "stale", "names")
# Rule left out, scenario that breaks then.
BREAKS = (
    ("declare", "append"),
    ("all_declared", "append"),
    ("expel_missing", "append"),
    ("window_bounded", "hole"),
    ("belief_checked", "append"),
    ("from_sending", "append"),
    ("greeting_voids", "append"),
    ("drop_old_grants", "append"),
    ("recall_voids_grant", "append"),
    ("back_after_answer", "append"),
    ("resends_in_order", "append"),
    ("resends_first", "append"),
    ("resends_pass", "append"),
    ("tombstone", "append"),
    ("eio_kept", "append"),
    ("relative", "append"),
    ("window_longer", "shared-t"),
    ("session_longer", "silent-t"),
    ("begin_durable", "twice"),
    ("window_end_durable", "twice"),
    ("first_answer", "twice"),
)


def main():
    begun, wrong = time.time(), 0
    for name in HOLDS:
        states, _, why = model.run(name, seconds=120)
        print(f"{name}: {states} states, {'holds' if why is None else why[0]}", flush=True)
        wrong += why is not None
    for rule, name in BREAKS:
        states, _, why = model.run(name, without=(rule,), seconds=120)
        missed = why is not None and why[0] != "LIMIT"
        print(f"{name} without {rule}: {states} states, {why[0] if missed else 'NOT MISSED'}", flush=True)
        wrong += not missed
    print(f"{len(HOLDS)} scenarios and {len(BREAKS)} rules in {time.time() - begun:.0f} s, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
