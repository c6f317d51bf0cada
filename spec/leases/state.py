"""A state of the model: tuples of cells, the names of the cells, and how a state with other cells is made.

A state is (server, old server or None, clients, ghost, faults left). The ghost is what the promises are measured against:
(acknowledged operations in order, those that an fsync made safe, those that may be lost).
"""

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
