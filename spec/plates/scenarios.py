"""Scenarios for model.py: homes of inodes, scripts of clients, numbers of faults; and the rules that each notices when they are left out.

Operations: (unlink|rmdir|mkdir|create|link, directory, name, inode), (rename, from, name, to, name, inode, is directory, victim),
("look", inode), ("fsync",). A create with a fifth part (directory, name) first looks its directory up there.
"""


def dirs(parent, **names):
    return ("dir", parent, tuple(sorted(names.items())))


FILE = ("file", 1)


def scenarios(World):
    s = {}
    # rmdir decided at 0, the directory on 1, somebody creates in it.
    s["rmdir"] = World(
        {"R": 0, "D": 1, "X": 1}, {"R": dirs(None, d="D"), "D": dirs("R")},
        [[("rmdir", "R", "d", "D"), ("fsync",)], [("create", "D", "x", "X"), ("fsync",)]], 2, 1)
    # unlink decided at 0 with its inode on 1; the same file is renamed by a decision at 1.
    s["unlink-rename"] = World(
        {"R": 0, "F": 1, "Q": 1}, {"R": dirs(None, f="F", q="Q"), "F": FILE, "Q": dirs("R")},
        [[("unlink", "R", "f", "F")], [("rename", "R", "f", "Q", "g", "F", False, None)]], 1, 1)
    # A second name for it is made meanwhile, and the first removed.
    s["unlink-link"] = World(
        {"R": 0, "F": 1, "Q": 1}, {"R": dirs(None, f="F", q="Q"), "F": FILE, "Q": dirs("R")},
        [[("unlink", "R", "f", "F")], [("link", "Q", "g", "F"), ("unlink", "Q", "g", "F")]], 2, 0)
    # A directory is born on 1; its maker and another create in it; then it is synced.
    s["mkdir"] = World(
        {"R": 0, "D": 1, "X": 1, "Y": 1}, {"R": dirs(None)},
        [[("mkdir", "R", "d", "D"), ("create", "D", "x", "X"), ("fsync",)],
         [("create", "D", "y", "Y", ("R", "d"))]], 2, 1)
    # A rename away from 0 is answered; a client that looks there must not see the old name.
    s["look"] = World(
        {"R": 0, "F": 0, "Q": 1}, {"R": dirs(None, f="F", q="Q"), "F": FILE, "Q": dirs("R")},
        [[("rename", "R", "f", "Q", "g", "F", False, None)], [("look", "R")]], 1, 1)
    # Two renames of files in opposite directions, inodes on a third plate.
    s["opposite"] = World(
        {"R": 0, "A": 1, "B": 2, "F": 0, "G": 0},
        {"R": dirs(None, a="A", b="B"), "A": dirs("R", f="F"), "B": dirs("R", g="G"), "F": FILE, "G": FILE},
        [[("rename", "A", "f", "B", "f", "F", False, None)], [("rename", "B", "g", "A", "g", "G", False, None)]], 1, 0)
    # /V/W/Y/X/Z: X moves up (all of it on 1), W moves below Z (decided at 0): both, or one of them, and no loop.
    s["loop"] = World(
        {"R": 1, "V": 2, "W": 2, "Y": 1, "X": 1, "Z": 0},
        {"R": dirs(None, v="V"), "V": dirs("R", w="W"), "W": dirs("V", y="Y"), "Y": dirs("W", x="X"),
         "X": dirs("Y", z="Z"), "Z": dirs("X")},
        [[("rename", "Y", "x", "R", "x", "X", True, None)], [("rename", "V", "w", "Z", "w", "W", True, None)]], 1, 1)
    # The classic: each of two directories into the other, parents on different plates.
    s["into-each-other"] = World(
        {"R": 0, "P": 1, "Q": 0, "A": 1, "B": 0},
        {"R": dirs(None, p="P", q="Q"), "P": dirs("R", a="A"), "Q": dirs("R", b="B"), "A": dirs("P"), "B": dirs("Q")},
        [[("rename", "P", "a", "B", "a", "A", True, None)], [("rename", "Q", "b", "A", "b", "B", True, None)]], 1, 0)
    # A grant outlives its plate.
    s["late-grant"] = World(
        {"R": 0, "D": 1, "X": 1}, {"R": dirs(None, d="D"), "D": dirs("R")},
        [[("rmdir", "R", "d", "D")], [("create", "D", "x", "X")]], 1, 0)
    # The directory is emptied, which is not durable, and removed by a decision elsewhere.
    s["emptied"] = World(
        {"R": 0, "D": 1, "X": 1}, {"R": dirs(None, d="D"), "D": dirs("R", x="X"), "X": FILE},
        [[("rmdir", "R", "d", "D")], [("unlink", "D", "x", "X")]], 2, 1)
    # Two directories each below the other: no row of one rename is a row of the other; at 1 nothing is owed.
    s["crossing"] = World(
        {"R": 0, "P": 1, "A": 1, "T": 0, "Q": 0, "B": 1, "S": 1},
        {"R": dirs(None, p="P", q="Q"), "P": dirs("R", a="A"), "A": dirs("P", t="T"), "T": dirs("A"),
         "Q": dirs("R", b="B"), "B": dirs("Q", s="S"), "S": dirs("B")},
        [[("rename", "P", "a", "S", "a", "A", True, None)], [("rename", "Q", "b", "T", "b", "B", True, None)]], 2, 1)
    # Connections between plates break, and plates die.
    s["breaks"] = World(
        {"R": 0, "F": 1, "Q": 1}, {"R": dirs(None, f="F", q="Q"), "F": FILE, "Q": dirs("R")},
        [[("unlink", "R", "f", "F"), ("fsync",)], [("link", "Q", "g", "F"), ("look", "Q")]], 1, 1, 1)
    # A client's operations one upon the other, over plates, against another's.
    s["chain"] = World(
        {"R": 0, "D": 1, "X": 1},
        {"R": dirs(None)},
        [[("mkdir", "R", "d", "D"), ("create", "D", "x", "X"), ("rename", "D", "x", "R", "x", "X", False, None), ("rmdir", "R", "d", "D"),
          ("fsync",)], [("look", "R")]], 2, 1)
    # The same, the token taken after all guards.
    s["crossing-last"] = World(*s["crossing"].args, token_last=True)
    s["loop-last"] = World(*s["loop"].args, token_last=True)
    # A rename over a file, all four rows on different plates, against an unlink of that file.
    s["victim"] = World(
        {"R": 0, "A": 0, "B": 1, "F": 2, "G": 3},
        {"R": dirs(None, a="A", b="B"), "A": dirs("R", f="F"), "B": dirs("R", g="G"), "F": FILE, "G": FILE},
        [[("rename", "A", "f", "B", "g", "F", False, "G"), ("fsync",)], [("unlink", "B", "g", "G")]], 1, 0)
    # A directory over an empty one in which somebody creates.
    s["over-empty"] = World(
        {"R": 0, "D": 0, "E": 1, "X": 1}, {"R": dirs(None, d="D", e="E"), "D": dirs("R"), "E": dirs("R")},
        [[("rename", "R", "d", "R", "e", "D", True, "E")], [("create", "E", "x", "X")]], 2, 1)
    # A client that may cache D asks to remove D/s; another renames D/s, and D is recalled.
    s["lease"] = World(
        {"R": 0, "S": 0, "T": 0, "D": 1}, {"R": dirs(None, d="D", t="T"), "D": dirs("R", s="S"), "T": dirs("R"), "S": dirs("D")},
        [[("rmdir", "D", "s", "S")], [("rename", "D", "s", "T", "s", "S", True, None)]], 1, 1, leases={"D": 0})
    # K goes below X, while X goes into K; plate 1 has cached where X is when it decided about M.
    s["places"] = World(
        {"R": 0, "V": 0, "X": 0, "K": 0, "M": 0, "T": 1},
        {"R": dirs(None, v="V", k="K", m="M"), "V": dirs("R", x="X"), "X": dirs("V", t="T"), "K": dirs("R"), "M": dirs("R"),
         "T": dirs("X")},
        [[("rename", "R", "m", "T", "m", "M", True, None), ("rename", "R", "k", "T", "k", "K", True, None)],
         [("rename", "V", "x", "K", "x", "X", True, None)]], 1, 0)
    # The same with X on a third plate, which dies, and which the second decision of plate 1 does not ask.
    s["places-third"] = World(
        {"R": 0, "V": 2, "X": 2, "K": 0, "M": 0, "T": 1}, s["places"].rows, s["places"].scripts, 1, 0)
    s["places-last"] = World(*s["places"].args, token_last=True)
    # A directory is born on 1 by a decision at 0, filled, and moved by a decision at 2.
    s["born-moved"] = World(
        {"R": 0, "D": 1, "X": 1, "T": 2}, {"R": dirs(None, t="T"), "T": dirs("R")},
        [[("mkdir", "R", "d", "D"), ("create", "D", "x", "X")], [("rename", "R", "d", "T", "d", "D", True, None)]], 1, 1)
    # Three renames in a ring, decided at three plates.
    s["ring"] = World(
        {"R": 0, "A": 0, "B": 1, "C": 2, "F": 0, "G": 1, "H": 2},
        {"R": dirs(None, a="A", b="B", c="C"), "A": dirs("R", f="F"), "B": dirs("R", g="G"), "C": dirs("R", h="H"),
         "F": FILE, "G": FILE, "H": FILE},
        [[("rename", "A", "f", "B", "f", "F", False, None)], [("rename", "B", "g", "C", "g", "G", False, None)],
         [("rename", "C", "h", "A", "h", "H", False, None)]], 0, 0)
    # Three clients.
    s["three"] = World(
        {"R": 0, "D": 1, "X": 1, "Y": 1}, {"R": dirs(None, d="D", y="Y"), "D": dirs("R"), "Y": FILE},
        [[("rmdir", "R", "d", "D")], [("create", "D", "x", "X")], [("rename", "R", "y", "D", "y", "Y", False, None)]], 1, 1)
    # Two files change places, all rows on different plates; one of them is unlinked meanwhile.
    s["exchange"] = World(
        {"R": 0, "A": 1, "B": 2, "F": 0, "G": 1},
        {"R": dirs(None, a="A", b="B"), "A": dirs("R", f="F"), "B": dirs("R", g="G"), "F": FILE, "G": FILE},
        [[("exchange", "A", "f", "B", "g", "F", False, "G", False), ("fsync",)], [("unlink", "B", "g", "G")]], 1, 1)
    # Both ways at once, decided at different plates.
    s["exchange-twice"] = World(
        {"R": 0, "A": 0, "B": 1, "F": 0, "G": 1}, s["exchange"].rows,
        [[("exchange", "A", "f", "B", "g", "F", False, "G", False)], [("exchange", "B", "g", "A", "f", "G", False, "F", False)]], 1, 0)
    # A in P and B in Q change places, while P goes into B: as if two moves, each with its own way up.
    s["exchange-loop"] = World(
        {"R": 0, "P": 1, "Q": 0, "A": 1, "B": 0},
        {"R": dirs(None, p="P", q="Q"), "P": dirs("R", a="A"), "Q": dirs("R", b="B"), "A": dirs("P"), "B": dirs("Q")},
        [[("exchange", "P", "a", "Q", "b", "A", True, "B", True), ("fsync",)], [("rename", "R", "p", "B", "p", "P", True, None)]], 1, 0)
    # Q goes into A; only the second way up (from the source, where B comes) or the first sees it.
    s["exchange-loop2"] = World(
        {"R": 1, "P": 1, "Q": 0, "A": 1, "B": 0}, s["exchange-loop"].rows,
        [s["exchange-loop"].scripts[0], [("rename", "R", "q", "A", "q", "Q", True, None)]], 1, 0)
    # A directory and a file change places; the directory goes where a plate has cached another place for it.
    s["exchange-places"] = World(
        {"R": 0, "V": 0, "X": 0, "K": 0, "M": 0, "F": 0, "T": 1},
        {"R": dirs(None, v="V", k="K", m="M"), "V": dirs("R", x="X"), "X": dirs("V", t="T"), "K": dirs("R", f="F"), "M": dirs("R"),
         "T": dirs("X"), "F": FILE},
        [s["places"].scripts[0], [("exchange", "K", "f", "V", "x", "F", False, "X", True)]], 1, 0)
    s["exchange-places2"] = World(
        s["exchange-places"].home, {**s["exchange-places"].rows, "K": dirs("R", f="F"), "F": dirs("K")},
        [s["places"].scripts[0], [("exchange", "K", "f", "V", "x", "F", True, "X", True)]], 1, 0)
    # As crossing, but A changes places with a file that is below B.
    s["exchange-crossing"] = World(
        {**s["crossing"].home, "F": 1},
        {**s["crossing"].rows, "S": dirs("B", f="F"), "F": FILE},
        [[("exchange", "P", "a", "S", "f", "A", True, "F", False)], s["crossing"].scripts[1]], 1, 0)
    huge_scenarios(s, World)
    clone_scenarios(s, World)
    handover_scenarios(s, World)
    return s


def handover_scenarios(s, World):
    """A plate goes to another server, planned or because its server is believed dead."""
    for name in ("rmdir", "unlink-rename", "unlink-link", "look", "emptied", "late-grant", "opposite", "split", "fold", "born-two", "born-rmdir4", "chmod"):
        old = s[name]
        crashes = 0 if name in ("rmdir", "emptied", "opposite", "unlink-link") else 1
        s["move-" + name] = World(*old.args[:3], crashes, 0, 0, huge=old.huge, moves=1)
        s["taken-" + name] = World(*old.args[:3], 0, 0, 0, huge=old.huge, moves=1, takeover=True)
    s["move-twice"] = World(*s["late-grant"].args[:3], 0, 0, 0, moves=2)


def split_dir(parent, pairs, **names):
    return dirs(parent, **names) + (tuple(pairs),)


def part(home, first, end, **names):
    return dirs(home, **names) + ((), (first, end))


def clone_scenarios(s, World):
    """Operations: (clone, directory, name, new file, source). A file that is cloned and its clone name one block."""
    content = ("file", 1, "B")
    own = ("block", 1, (), None)
    # Cloned to another plate, while the source is removed; and the clone is removed.
    s["clone"] = World(
        {"R": 0, "Q": 1, "F": 0, "G": 1, "B@0": 0}, {"R": dirs(None, f="F", q="Q"), "Q": dirs("R"), "F": content, "B@0": own},
        [[("clone", "Q", "g", "G", "F"), ("unlink", "Q", "g", "G")], [("unlink", "R", "f", "F")]], 1, 1, blocks=("B",))
    # The clone is cloned to a third plate, while everything else is removed.
    s["clone-of-clone"] = World(
        {"R": 0, "P": 1, "Q": 2, "F": 0, "G": 1, "H": 2, "B@0": 0, "B@1": 1},
        {"R": dirs(None, p="P", q="Q"), "P": dirs("R", g="G"), "Q": dirs("R"), "G": content, "B@0": ("block", 0, (1,), None), "B@1": ("block", 1, (), 0)},
        [[("clone", "Q", "h", "H", "G")], [("unlink", "P", "g", "G")]], 1, 0, blocks=("B",))
    # Back and forth: a plate returns the block, and borrows it again; and the first plate gets it back from its borrower.
    s["clone-again"] = World(
        {"R": 0, "Q": 1, "F": 0, "G": 1, "H": 1, "B@0": 0}, {"R": dirs(None, f="F", q="Q"), "Q": dirs("R"), "F": content, "B@0": own},
        [[("clone", "Q", "g", "G", "F"), ("unlink", "Q", "g", "G"), ("clone", "Q", "h", "H", "F"), ("fsync",)]], 1, 0, blocks=("B",))
    s["clone-back"] = World(
        {"R": 0, "Q": 1, "F": 0, "G": 1, "H": 0, "B@0": 0}, {"R": dirs(None, f="F", q="Q"), "Q": dirs("R"), "F": content, "B@0": own},
        [[("clone", "Q", "g", "G", "F"), ("clone", "R", "h", "H", "G")], [("unlink", "R", "f", "F")]], 1, 0, blocks=("B",))


def huge_scenarios(s, World):
    """Operations: (split, home, first name, new part, part that is split or None), (fold, home, first name that stays or None, part), (look, directory, name), (list, home), (stat, home)."""
    huge = {"huge": ("H",)}
    # A directory is split while somebody creates in the range that goes, and looks.
    s["split"] = World(
        {"H": 0, "H:1": 1, "R": 0}, {"R": dirs(None, h="H"), "H": dirs("R")},
        [[("split", "H", "m", "H:1", None), ("look", "H", "x")], [("create", "H", "x", "X"), ("fsync",)]], 1, 1, **huge)
    # The same with an entry that goes with it and is unlinked; its inode is at home.
    s["split-unlink"] = World(
        {"H": 0, "H:1": 1, "R": 0, "F": 0}, {"R": dirs(None, h="H"), "H": dirs("R", x="F"), "F": FILE},
        [[("split", "H", "m", "H:1", None)], [("unlink", "H", "x", "F"), ("look", "H", "x")]], 1, 1, **huge)
    # Created and unlinked by one: a resend must find neither.
    s["split-again"] = World(
        {"H": 0, "H:1": 1, "R": 0}, {"R": dirs(None, h="H"), "H": dirs("R")},
        [[("split", "H", "m", "H:1", None)], [("create", "H", "x", "X"), ("unlink", "H", "x", "X")]], 1, 0, **huge)
    # A part is split once more, to a third plate.
    s["split-part"] = World(
        {"H": 0, "H:1": 1, "H:2": 2, "R": 0, "F": 1},
        {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~", x="F"), "F": FILE},
        [[("split", "H", "t", "H:2", "H:1")], [("create", "H", "n", "N"), ("create", "H", "y", "Y"), ("look", "H", "x")]], 1, 0, **huge)
    # A part is folded while somebody creates in it and looks.
    s["fold"] = World(
        {"H": 0, "H:1": 1, "R": 0, "F": 1}, {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~", x="F"), "F": FILE},
        [[("fold", "H", None, "H:1")], [("create", "H", "y", "Y"), ("look", "H", "x")]], 1, 1, **huge)
    s["fold-unlink"] = World(
        {"H": 1, "H:1": 0, "R": 0, "F": 1}, s["fold"].rows,
        [[("fold", "H", None, "H:1"), ("look", "H", "x")], [("unlink", "H", "x", "F")]], 2, 1, **huge)
    # The first names of a part are folded: the range goes home piece by piece.
    s["fold-piece"] = World(
        {"H": 0, "H:1": 1, "R": 0, "F": 1, "G": 1},
        {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~", n="F", x="G"), "F": FILE, "G": FILE},
        [[("fold", "H", "t", "H:1"), ("fold", "H", None, "H:1")], [("unlink", "H", "n", "F"), ("look", "H", "x")]], 1, 0, **huge)
    # A piece is folded while one client creates in it and another in the rest; and while the directory is listed.
    s["fold-piece-create"] = World(
        {"H": 0, "H:1": 1, "R": 0, "F": 1}, {**s["fold"].rows},
        [[("fold", "H", "t", "H:1")], [("create", "H", "n", "N"), ("create", "H", "y", "Y"), ("fsync",)]], 1, 0, **huge)
    s["fold-piece-list"] = World(
        s["fold-piece"].home, s["fold-piece"].rows, [[("fold", "H", "t", "H:1"), ("fold", "H", None, "H:1")], [("list", "H")]], 1, 0, **huge)
    # Split and folded, and split again with another number, while somebody creates.
    s["split-fold"] = World(
        {"H": 0, "H:1": 1, "H:2": 1, "R": 0}, {"R": dirs(None, h="H"), "H": dirs("R")},
        [[("split", "H", "m", "H:1", None), ("fold", "H", None, "H:1"), ("split", "H", "m", "H:2", None)],
         [("create", "H", "x", "X"), ("create", "H", "y", "Y")]], 1, 0, **huge)
    # A split directory is removed while somebody creates in a part; the plates in each order.
    for name, r, h, one in (("part-rmdir", 0, 1, 2), ("part-rmdir2", 1, 2, 0), ("part-rmdir3", 2, 0, 1), ("part-rmdir4", 0, 1, 0)):
        s[name] = World(
            {"R": r, "H": h, "H:1": one}, {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~")},
            [[("rmdir", "R", "h", "H")], [("create", "H", "x", "X")]], 1, 0, **huge)
    # Removed while it is split.
    for name, r, h, one in (("split-rmdir", 0, 1, 2), ("split-rmdir2", 1, 2, 0), ("split-rmdir3", 2, 0, 1), ("split-rmdir4", 0, 1, 0)):
        s[name] = World(
            {"R": r, "H": h, "H:1": one}, {"R": dirs(None, h="H"), "H": dirs("R")},
            [[("split", "H", "m", "H:1", None)], [("rmdir", "R", "h", "H")]], 1, 1, **huge)
    # Removed while it is folded, and created in.
    s["fold-rmdir"] = World(
        {"R": 0, "H": 1, "H:1": 0}, s["part-rmdir"].rows, [[("fold", "H", None, "H:1")], [("rmdir", "R", "h", "H")]], 1, 1, **huge)
    # The same with the directory beside its parent, so that no guard on it waits for the fold.
    s["fold-rmdir-near"] = World(
        {"R": 0, "H": 0, "H:1": 1}, s["part-rmdir"].rows,
        [[("fold", "H", None, "H:1")], [("rmdir", "R", "h", "H")], [("create", "H", "x", "X")]], 1, 0, **huge)
    s["fold-over"] = World(
        {"R": 0, "D": 0, "H": 0, "H:1": 1}, {**s["part-rmdir"].rows, "R": dirs(None, d="D", h="H"), "D": dirs("R")},
        [[("fold", "H", None, "H:1")], [("rename", "R", "d", "R", "h", "D", True, "H")], [("create", "H", "x", "X")]], 1, 0, **huge)
    # Renamed out of a part that is made, and into one.
    s["split-out"] = World(
        {"H": 0, "H:1": 1, "R": 0, "Q": 1, "F": 0}, {"R": dirs(None, h="H", q="Q"), "H": dirs("R", x="F"), "Q": dirs("R"), "F": FILE},
        [[("split", "H", "m", "H:1", None)], [("rename", "H", "x", "Q", "q", "F", False, None), ("fsync",)]], 1, 0, **huge)
    s["split-in"] = World(
        {"H": 0, "H:1": 1, "R": 0, "Q": 1, "F": 0}, {"R": dirs(None, h="H", q="Q"), "H": dirs("R"), "Q": dirs("R", q="F"), "F": FILE},
        [[("split", "H", "m", "H:1", None)], [("rename", "Q", "q", "H", "x", "F", False, None), ("look", "H", "x")]], 1, 0, **huge)
    s["fold-out"] = World(
        {"H": 0, "H:1": 1, "R": 0, "Q": 0, "F": 1}, {**s["fold"].rows, "R": dirs(None, h="H", q="Q"), "Q": dirs("R")},
        [[("fold", "H", None, "H:1")], [("rename", "H", "x", "Q", "q", "F", False, None)]], 1, 0, **huge)
    s["fold-in"] = World(
        {"H": 0, "H:1": 1, "R": 0, "Q": 0, "F": 1}, {**s["fold"].rows, "R": dirs(None, h="H", q="Q"), "Q": dirs("R", q="G"), "G": FILE},
        [[("fold", "H", None, "H:1")], [("rename", "Q", "q", "H", "y", "G", False, None)]], 1, 0, **huge)
    s["fold-in"].home["G"] = 0
    # A directory goes into a part, while the home goes into that directory.
    s["part-loop"] = World(
        {"R": 0, "H": 0, "H:1": 1, "D": 1}, {"R": dirs(None, h="H", d="D"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~"), "D": dirs("R")},
        [[("rename", "R", "d", "H", "x", "D", True, None)], [("rename", "R", "h", "D", "h", "H", True, None)]], 1, 0, **huge)
    # As crossing, but A goes into a part of a directory below B.
    s["part-crossing"] = World(
        {"R": 0, "P": 1, "A": 1, "T": 0, "Q": 0, "B": 1, "H": 0, "H:1": 1},
        {"R": dirs(None, p="P", q="Q"), "P": dirs("R", a="A"), "A": dirs("P", t="T"), "T": dirs("A"),
         "Q": dirs("R", b="B"), "B": dirs("Q", h="H"), "H": split_dir("B", [("m", "H:1")]), "H:1": part("H", "m", "~")},
        [[("rename", "P", "a", "H", "x", "A", True, None)], [("rename", "Q", "b", "T", "b", "B", True, None)]], 1, 0, **huge)
    # A directory is born in a part, on a third plate; its maker and another create in it.
    s["part-mkdir"] = World(
        {"R": 0, "H": 0, "H:1": 1, "D": 2, "X": 2, "Y": 2}, {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~")},
        [[("mkdir", "H", "x", "D"), ("create", "D", "x", "X")], [("create", "D", "y", "Y", ("H:1", "x"))]], 1, 1, **huge)
    # Born while the directory is split, at the part's plate and at the home's, and removed again.
    for name, d in (("split-mkdir", 1), ("split-mkdir2", 0)):
        s[name] = World(
            {"R": 0, "H": 0, "H:1": 1, "D": d}, {"R": dirs(None, h="H"), "H": dirs("R")},
            [[("split", "H", "m", "H:1", None)], [("mkdir", "H", "x", "D"), ("rmdir", "H", "x", "D"), ("fsync",)]], 1, 0, **huge)
    # Born while its part is folded.
    s["fold-mkdir"] = World(
        {"R": 0, "H": 0, "H:1": 1, "D": 0}, {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~")},
        [[("fold", "H", None, "H:1")], [("mkdir", "H", "x", "D"), ("fsync",)]], 1, 1, **huge)
    # Born in a part while the split directory is removed.
    s["part-rmdir-mkdir"] = World(
        {"R": 0, "H": 1, "H:1": 0, "D": 1}, s["part-mkdir"].rows, [[("rmdir", "R", "h", "H")], [("mkdir", "H", "x", "D")]], 1, 0, **huge)
    # Split, removed, and a name goes from the part to the home: the guards of the last two in one order.
    s["split-rmdir-rename"] = World(
        {"R": 1, "H": 2, "H:1": 0, "F": 0}, {"R": dirs(None, h="H"), "H": dirs("R", x="F"), "F": FILE},
        [[("split", "H", "m", "H:1", None)], [("rmdir", "R", "h", "H")], [("rename", "H", "x", "H", "a", "F", False, None)]], 0, 0, **huge)
    # Listed while it is split, folded, and split elsewhere.
    s["list"] = World(
        {"R": 0, "H": 0, "H:1": 1, "H:2": 1, "F": 0, "G": 0, "I": 0},
        {"R": dirs(None, h="H"), "H": dirs("R", a="F", n="G", x="I"), "F": FILE, "G": FILE, "I": FILE},
        [[("split", "H", "m", "H:1", None), ("fold", "H", None, "H:1"), ("split", "H", "t", "H:2", None)], [("list", "H")]], 1, 0, **huge)
    s["list-part"] = World(
        {**s["list"].home, "H:2": 2}, s["list"].rows,
        [[("split", "H", "m", "H:1", None), ("split", "H", "t", "H:2", "H:1"), ("fold", "H", None, "H:1")],
         [("list", "H")], [("unlink", "H", "n", "G")]], 0, 0, **huge)
    # Between two parts of one directory, while one is folded.
    s["between-parts"] = World(
        {"R": 0, "H": 0, "H:1": 1, "H:2": 2, "F": 1},
        {"R": dirs(None, h="H"), "H": split_dir("R", [("g", "H:1"), ("p", "H:2")]), "H:1": part("H", "g", "p", i="F"), "H:2": part("H", "p", "~"), "F": FILE},
        [[("rename", "H", "i", "H", "x", "F", False, None)], [("fold", "H", None, "H:1")]], 1, 0, **huge)
    born_scenarios(s, World, huge)
    attribute_scenarios(s, World, huge)
    # Two names change places: between the parts of a directory while one is folded, and between a part and another directory.
    s["part-exchange"] = World(
        {"R": 0, "H": 0, "H:1": 1, "F": 1, "G": 0},
        {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")], a="G"), "H:1": part("H", "m", "~", x="F"), "F": FILE, "G": FILE},
        [[("exchange", "H", "a", "H", "x", "G", False, "F", False), ("look", "H", "x")], [("fold", "H", None, "H:1")]], 1, 0, **huge)
    s["split-exchange"] = World(
        {"R": 0, "H": 0, "H:1": 1, "Q": 1, "F": 0, "G": 1},
        {"R": dirs(None, h="H", q="Q"), "H": dirs("R", x="F"), "Q": dirs("R", q="G"), "F": FILE, "G": FILE},
        [[("split", "H", "m", "H:1", None)], [("exchange", "H", "x", "Q", "q", "F", False, "G", False), ("fsync",)]], 1, 0, **huge)
    # A name for a file of another plate, in a range that is split off, and in one that is folded.
    s["split-link"] = World(
        {"R": 0, "H": 0, "H:1": 1, "F": 1}, {"R": dirs(None, h="H", f="F"), "H": dirs("R"), "F": FILE},
        [[("split", "H", "m", "H:1", None)], [("link", "H", "x", "F"), ("look", "H", "x"), ("fsync",)]], 1, 0, **huge)
    s["fold-link"] = World(
        {"R": 0, "H": 0, "H:1": 1, "F": 0}, {"R": dirs(None, h="H", f="F"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~"), "F": FILE},
        [[("fold", "H", None, "H:1")], [("link", "H", "x", "F"), ("unlink", "R", "f", "F")]], 1, 0, **huge)
    # The home itself is moved by a decision elsewhere, while it is split or folded and created in.
    s["split-home-moves"] = World(
        {"R": 1, "Q": 2, "H": 0, "H:1": 1}, {"R": dirs(None, h="H", q="Q"), "Q": dirs("R"), "H": dirs("R")},
        [[("split", "H", "m", "H:1", None)], [("rename", "R", "h", "Q", "h", "H", True, None), ("create", "H", "x", "X")]], 1, 0, **huge)
    s["fold-home-moves"] = World(
        {"R": 0, "Q": 1, "H": 0, "H:1": 1, "F": 1},
        {"R": dirs(None, h="H", q="Q"), "Q": dirs("R"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~", x="F"), "F": FILE},
        [[("fold", "H", None, "H:1")], [("rename", "R", "h", "Q", "h", "H", True, None), ("look", "H", "x")]], 1, 0, **huge)
    # A directory replaces an empty split one, in a part of which somebody creates; the plates in each order; and one that is split meanwhile.
    for name, r, h, one in (("over-parts", 0, 1, 2), ("over-parts2", 1, 2, 0), ("over-parts3", 2, 0, 1), ("over-parts4", 0, 1, 0)):
        s[name] = World(
            {"R": r, "D": r, "H": h, "H:1": one},
            {"R": dirs(None, d="D", h="H"), "D": dirs("R"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~")},
            [[("rename", "R", "d", "R", "h", "D", True, "H")], [("create", "H", "x", "X")]], 1, 0, **huge)
    s["over-split"] = World(
        {"R": 1, "D": 1, "H": 2, "H:1": 0}, {"R": dirs(None, d="D", h="H"), "D": dirs("R"), "H": dirs("R")},
        [[("split", "H", "m", "H:1", None)], [("rename", "R", "d", "R", "h", "D", True, "H")]], 1, 0, **huge)
    # Summed while it is split, folded in pieces, and split elsewhere.
    s["stat"] = World(s["list"].home, s["list"].rows, [s["list"].scripts[0], [("stat", "H")]], 1, 0, **huge)
    s["stat-part"] = World(s["list-part"].home, s["list"].rows, [s["list-part"].scripts[0], [("stat", "H")]], 0, 0, **huge)
    s["stat-piece"] = World(
        s["fold-piece"].home, s["fold-piece"].rows, [[("fold", "H", "t", "H:1"), ("fold", "H", None, "H:1")], [("stat", "H")]], 1, 0, **huge)
    s["stat-unlink"] = World(
        {**s["list"].home, "H:2": 2},
        {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")], a="F"), "H:1": part("H", "m", "~", n="G", x="I"), "F": FILE, "G": FILE, "I": FILE},
        [[("split", "H", "t", "H:2", "H:1"), ("fold", "H", None, "H:1")], [("stat", "H")], [("unlink", "H", "n", "G")]], 0, 0, **huge)


def born_scenarios(s, World, huge):
    """Operation: (mkdir, directory, name, inode, list): the directory is born with parts (`huge: always`)."""
    born = (("g", "H:1"), ("p", "H:2"))
    # Its maker creates in each part at once, by the list in the answer; another client, which knows the number only, as well.
    s["born"] = World(
        {"R": 0, "H": 1, "H:1": 0, "H:2": 2}, {"R": dirs(None)},
        [[("mkdir", "R", "h", "H", born), ("create", "H", "x", "X"), ("fsync",)], [("create", "H", "i", "I")]], 1, 0, **huge)
    # Two plates: the home and a part.
    for name, r, h, one in (("born-two", 0, 1, 0), ("born-two2", 1, 1, 0)):
        s[name] = World(
            {"R": r, "H": h, "H:1": one}, {"R": dirs(None)},
            [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("create", "H", "x", "X"), ("look", "H", "x"), ("fsync",)], [("create", "H", "y", "Y")]], 1, 1, **huge)
    # Removed at once, while another creates in a part; and made again under the name.
    for name, r, h, one in (("born-rmdir", 0, 1, 2), ("born-rmdir2", 1, 2, 0), ("born-rmdir3", 2, 0, 1), ("born-rmdir4", 0, 1, 0)):
        s[name] = World(
            {"R": r, "H": h, "H:1": one}, {"R": dirs(None)},
            [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("rmdir", "R", "h", "H"), ("fsync",)], [("create", "H", "x", "X")]], 1, 0, **huge)
    s["born-again"] = World(
        {"R": 0, "H": 1, "H:1": 0, "D": 1}, {"R": dirs(None)},
        [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("rmdir", "R", "h", "H"), ("mkdir", "R", "h", "D")], [("create", "H", "x", "X")]], 1, 1, **huge)
    # A directory is born in a part that is not born itself.
    s["born-mkdir"] = World(
        {"R": 0, "H": 1, "H:1": 0, "D": 1}, {"R": dirs(None)},
        [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("mkdir", "H", "x", "D"), ("create", "D", "y", "Y@D"), ("fsync",)]], 2, 0, **huge)
    s["born-mkdir"].home["Y@D"] = 1
    # A file is renamed into a part that is not born, decided there; and from one part to another.
    s["born-in"] = World(
        {"R": 0, "H": 0, "H:1": 1, "F": 0}, {"R": dirs(None, f="F"), "F": FILE},
        [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("rename", "R", "f", "H", "x", "F", False, None), ("rename", "H", "x", "H", "a", "F", False, None)]], 2, 0, **huge)
    # Listed and summed at once.
    s["born-list"] = World(
        {"R": 0, "H": 1, "H:1": 0}, {"R": dirs(None)},
        [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("stat", "H"), ("list", "H")], [("create", "H", "x", "X")]], 1, 0, **huge)
    # Folded before its parts are there.
    s["born-fold"] = World(
        {"R": 0, "H": 1, "H:1": 0}, {"R": dirs(None)},
        [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("fold", "H", None, "H:1")], [("create", "H", "x", "X")]], 1, 0, **huge)


def attribute_scenarios(s, World, huge):
    """Operation: (chmod, home, "closed"): no name in the directory may be changed any more."""
    rows = {"R": dirs(None, h="H"), "H": split_dir("R", [("m", "H:1")]), "H:1": part("H", "m", "~")}
    # Closed while somebody creates in a part and at home; the part's plate after the home's and before it.
    for name, h, one in (("chmod", 0, 1), ("chmod2", 1, 0)):
        s[name] = World(
            {"R": 0, "H": h, "H:1": one}, rows,
            [[("chmod", "H", "closed"), ("fsync",)], [("create", "H", "x", "X"), ("create", "H", "a", "A")]], 1, 1, **huge)
    # Closed while it is split, and while it is folded.
    for name, h, one in (("split-chmod", 0, 1), ("split-chmod2", 1, 0)):
        s[name] = World(
            {"R": 0, "H": h, "H:1": one}, {"R": dirs(None, h="H"), "H": dirs("R")},
            [[("split", "H", "m", "H:1", None)], [("chmod", "H", "closed")], [("create", "H", "x", "X")]], 1, 0, **huge)
    for name, h, one in (("fold-chmod", 0, 1), ("fold-chmod2", 1, 0)):
        s[name] = World(
            {"R": 0, "H": h, "H:1": one}, rows,
            [[("fold", "H", None, "H:1")], [("chmod", "H", "closed")], [("create", "H", "x", "X")]], 1, 0, **huge)
    # Split after it was closed.
    s["chmod-split"] = World(
        {"R": 0, "H": 0, "H:1": 1}, {"R": dirs(None, h="H"), "H": dirs("R")},
        [[("chmod", "H", "closed"), ("split", "H", "m", "H:1", None)], [("create", "H", "x", "X")]], 1, 0, **huge)
    # A part is split on while the directory is closed: the new part below the row that is held.
    s["chmod-split-part"] = World(
        {"R": 1, "H": 2, "H:1": 1, "H:2": 0}, rows,
        [[("split", "H", "t", "H:2", "H:1")], [("chmod", "H", "closed")]], 1, 0, **huge)
    # Closed while the home is split and a name goes from the new part to the old one: both take the parts in one order.
    s["chmod-rename"] = World(
        {"R": 1, "H": 2, "H:1": 1, "H:2": 0, "F": 0}, {**rows, "H": split_dir("R", [("m", "H:1")], h="F"), "F": FILE},
        [[("split", "H", "g", "H:2", None)], [("chmod", "H", "closed")], [("rename", "H", "h", "H", "n", "F", False, None)]], 0, 0, **huge)
    # Closed while names leave a part and enter it by decisions at other plates.
    s["chmod-out"] = World(
        {"R": 0, "H": 0, "H:1": 1, "Q": 2, "F": 1}, {**rows, "R": dirs(None, h="H", q="Q"), "H:1": part("H", "m", "~", x="F"), "Q": dirs("R"), "F": FILE},
        [[("chmod", "H", "closed")], [("rename", "H", "x", "Q", "x", "F", False, None), ("fsync",)]], 1, 0, **huge)
    s["chmod-exchange"] = World(
        {"R": 0, "H": 0, "H:1": 1, "Q": 0, "F": 1, "G": 0},
        {**rows, "R": dirs(None, h="H", q="Q"), "H:1": part("H", "m", "~", x="F"), "Q": dirs("R", q="G"), "F": FILE, "G": FILE},
        [[("chmod", "H", "closed")], [("exchange", "H", "x", "Q", "q", "F", False, "G", False)]], 1, 0, **huge)
    # Changed by two clients: all parts end as the home does.
    s["chmod-twice"] = World(
        {"R": 0, "H": 1, "H:1": 0, "H:2": 2}, {"R": dirs(None, h="H"), "H": split_dir("R", [("g", "H:1"), ("p", "H:2")]), "H:1": part("H", "g", "p"), "H:2": part("H", "p", "~")},
        [[("chmod", "H", "closed")], [("chmod", "H", "shared")]], 1, 0, **huge)
    # A look at a part shows it.
    s["chmod-look"] = World({"R": 0, "H": 0, "H:1": 1}, rows, [[("chmod", "H", "closed")], [("look", "H:1"), ("look", "H:1")]], 1, 1, **huge)
    # Closed while it is removed.
    s["chmod-rmdir"] = World(
        {"R": 0, "H": 1, "H:1": 0}, rows, [[("chmod", "H", "closed")], [("rmdir", "R", "h", "H")]], 1, 1, **huge)
    # Closed while it is born: the parts' plates hear of the birth and of the change from different plates.
    s["born-chmod"] = World(
        {"R": 0, "H": 1, "H:1": 2}, {"R": dirs(None)},
        [[("mkdir", "R", "h", "H", (("m", "H:1"),)), ("chmod", "H", "closed")], [("create", "H", "x", "X")]], 1, 0, **huge)


# Which scenario notices that a rule is missing.
NOTICED = [
    ("own_rows_in_order", "unlink-rename"), ("gives_way", "unlink-rename"), ("own_rows_in_order", "opposite"), ("guard_durable", "emptied"),
    ("guard_durable", "unlink-link"), ("effect_durable", "rmdir"), ("effect_durable", "mkdir"),
    ("guards_survive_decider", "rmdir"), ("guards_survive_decider", "unlink-link"), ("old_guards_fall", "unlink-rename"),
    ("window_waits_for_plates", "rmdir"), ("effects_first", "unlink-link"),
    ("windows_end_together", "rmdir"), ("declare_decided", "rmdir"), ("drop_old_grants", "late-grant"),
    ("forgotten_give_back", "mkdir"), ("reads_wait", "look"), ("unborn_parks", "mkdir"), ("unborn_closes", "mkdir"),
    ("leases_back_at_once", "lease"), ("walk_reads_guarded", "crossing-last"), 
    ("place_recalled", "places"), ("place_dropped", "places"), ("place_dropped", "places-third"), ("place_uncached_under_guard", "places-last"),
    ("replan_each_guard", "born-moved"), ("token", "crossing"), ("token_durable", "loop"), ("token_durable", "crossing"), ("token_survives", "crossing"),
    ("exchange_both_ways", "exchange-loop"), ("exchange_recalls_both", "exchange-places2"), ("token", "exchange-crossing"), ("token", "part-crossing"),
    ("keeps_plate", "split"), ("keeps_plate", "split-again"), ("keeps_plate", "fold"), ("look_again", "split"), ("look_again", "fold"),
    ("part_knows_range", "split-part"), ("list_at_decision", "split-again"), ("list_at_decision", "split-out"),
    ("list_by_hash", "list"), ("rmdir_guards_parts", "part-rmdir"), ("rmdir_guards_parts", "split-rmdir"), ("parts_in_order", "split-rmdir-rename"),
    ("again_after_return", "split-rmdir-rename"), ("hint_dropped", "split-rmdir"), ("fold_guards", "fold"), ("fold_durable", "fold"),
    ("unborn_parks", "split"), ("unborn_closes", "split"), ("effect_durable", "split"), ("reads_wait", "fold"),
    ("unborn_parks", "part-mkdir"), ("effect_durable", "part-mkdir"), ("fold_guards", "fold-piece"), ("fold_durable", "fold-piece"),
    ("part_knows_range", "fold-piece-create"), ("list_by_hash", "fold-piece-list"),
    ("unborn_parks", "born"), ("unborn_closes", "born-two"), ("effect_durable", "born-in"), ("rmdir_guards_parts", "born-rmdir"),
    ("look_again", "born-fold"), ("list_durable", "fold-chmod"), ("list_durable", "fold-rmdir-near"), ("list_durable", "fold-over"), ("chmod_guards_parts", "chmod"), ("chmod_guards_parts", "split-chmod"), ("chmod_guards_parts", "born-chmod"),
    ("part_has_attributes", "chmod-split"), ("parts_in_order", "chmod-rename"), ("asked_first", "chmod-rename"), ("reads_wait", "chmod-look"),
    ("rmdir_guards_parts", "over-parts"), ("sum_by_range", "stat"), ("sum_by_range", "stat-part"),
    ("list_at_decision", "part-exchange"), ("look_again", "split-home-moves"), ("keeps_plate", "split-link"),
    ("lent_by_source", "clone-of-clone"), ("kept_while_lent", "clone"),
    ("close_before_claim", "move-emptied"), ("takeover_boot", "taken-late-grant"), ("takeover_guards", "move-rmdir"),
    ("zombie_silent", "taken-look"), ("window_moves", "move-look"), ("drop_old_grants", "move-late-grant"),
]
