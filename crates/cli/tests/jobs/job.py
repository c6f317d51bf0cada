"""Checkpoints of many processes, sqlite in all journal modes, extended attributes."""

import fcntl
import mmap
import os
import sqlite3
import sys

WRITERS, ROUNDS = 16, 5


def write_checkpoints(at, writer):
    folder = os.path.join(at, "checkpoints")
    for step in range(ROUNDS):
        name = os.path.join(folder, f"rank{writer}")
        with open(name + ".new", "wb") as file:
            file.write(bytes([writer, step]) * 20_000)
            file.flush()
            os.fsync(file.fileno())
        os.rename(name + ".new", name)
        with open(os.path.join(folder, f"step{step}.{writer}"), "wb") as file:
            file.write(bytes([step]) * (1 + 700 * writer))
        # All write one log, a line of the same length each time.
        with open(os.path.join(folder, "log"), "ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.write(f"{writer:3} {step:3}\n".encode())
    if writer % 4 == 0:
        os.unlink(os.path.join(folder, f"step0.{writer}"))


def checkpoints(at):
    os.mkdir(os.path.join(at, "checkpoints"))
    children = []
    for writer in range(WRITERS):
        child = os.fork()
        if child == 0:
            write_checkpoints(at, writer)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0, child
    with open(os.path.join(at, "checkpoints", "log"), "rb") as log:
        assert len(set(log.read().splitlines())) == WRITERS * ROUNDS


def databases(at):
    for mode in ["delete", "truncate", "persist", "memory", "wal", "off"]:
        name = os.path.join(at, mode + ".db")
        base = sqlite3.connect(name, isolation_level=None)
        assert base.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode
        base.execute("create table t (id integer primary key, text text)")
        for start in range(0, 200, 50):
            base.execute("begin")
            base.executemany("insert into t values (?, ?)", [(n, f"row {n} " * 20) for n in range(start, start + 50)])
            base.execute("commit")
        if mode != "off":
            base.execute("begin")
            base.execute("delete from t")
            base.execute("rollback")
        base.execute("update t set text = 'changed' where id % 3 = 0")
        other = sqlite3.connect(name)
        assert other.execute("select count(*) from t").fetchone()[0] == 200
        assert other.execute("pragma integrity_check").fetchone()[0] == "ok"
        other.close()
        base.close()


def attributes(at):
    name = os.path.join(at, "attributes")
    with open(name, "wb") as file:
        file.write(bytes(100))
    for n in range(5):
        os.setxattr(name, f"user.a{n}", bytes([n]) * (1 << 2 * n))
    os.removexattr(name, "user.a0")
    os.setxattr(name, "user.a1", b"again", os.XATTR_REPLACE)
    os.setxattr(os.path.join(at, "source"), "user.of a directory", b"\0\xff")


def mappings(at):
    with open(os.path.join(at, "mapped"), "w+b") as file:
        file.truncate(50_000)
        with mmap.mmap(file.fileno(), 0) as mapped:
            mapped[10_000:10_006] = b"mapped"
            mapped.flush()
            mapped[49_999:50_000] = b"!"
    with open(os.path.join(at, "hole"), "wb") as file:
        file.seek(3_000_000)
        file.write(b"behind a hole")


checkpoints(sys.argv[1])
databases(sys.argv[1])
attributes(sys.argv[1])
mappings(sys.argv[1])
