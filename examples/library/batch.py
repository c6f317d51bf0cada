"""Makes a thousand files with content in one message, asks for their attributes in another, and removes them in a third. In between it
shortens one of them, and has the server search.

    CHITON_LIBRARY=target/release/libchiton.so python3 batch.py unix:/srv/chiton/socket
"""
import ctypes, errno, os, sys
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

PERFORM_ALL, STOP_ON_FAILURE = 0, 1
READ, WRITE, CREATE, EXCLUSIVE, TRUNCATE = 1, 2, 4, 8, 16
SET_MODE, SET_UID, SET_GID, SET_MTIME, SET_ATIME, SET_SIZE = 1, 2, 4, 8, 16, 32


class Attr(Structure):
    _fields_ = [("ino", c_uint64), ("size", c_uint64), ("mtime_ns", c_int64)]
    _fields_ += [(name, c_uint32) for name in ("mode", "nlink", "uid", "gid")]


class Name(Structure):
    _fields_ = [("dir", c_uint64), ("name", c_char_p)]


class File(Structure):
    _fields_ = [("at", Name), ("flags", c_uint32), ("mode", c_uint32), ("content", c_char_p), ("len", c_size_t)]


class Change(Structure):
    _fields_ = [("ino", c_uint64), ("mtime_ns", c_int64), ("atime_ns", c_int64), ("size", c_uint64)]
    _fields_ += [(name, c_uint32) for name in ("set", "mode", "uid", "gid")]


class Result(Structure):
    _fields_ = [("attr", Attr), ("file", c_uint64), ("error", c_int)]


lib = ctypes.CDLL(os.environ.get("CHITON_LIBRARY", "libchiton.so"))
lib.chiton_error.restype = c_char_p
lib.chiton_connect.restype = c_void_p
Found = CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(Attr))
lib.chiton_start_find.argtypes = [c_void_p, c_char_p, c_void_p]
lib.chiton_start_find.restype = c_uint64
lib.chiton_wait_find.argtypes = [c_void_p, c_uint64, c_void_p, Found, c_void_p]
calls = [("openv", File), ("closev", c_uint64), ("lookupv", Name), ("setattrv", Change), ("unlinkv", Name)]
for call, item in calls:
    function = getattr(lib, "chiton_" + call)
    function.argtypes = [c_void_p, POINTER(item), c_size_t, c_int, POINTER(Result)]
    function.restype = c_int64


def need(is_good):
    if not is_good:
        raise OSError(lib.chiton_errno(), lib.chiton_error().decode())


def batch(call, items, how=PERFORM_ALL):
    """The result of each item, in their order."""
    results = (Result * len(items))()
    array = (call.argtypes[1]._type_ * len(items))(*items)
    need(call(fs, array, len(items), how, results) >= 0)
    return results


if len(sys.argv) < 2:
    sys.exit("usage: batch.py ADDRESS")
fs = c_void_p(lib.chiton_connect(sys.argv[1].encode(), None))
attr = Attr()
need(fs and lib.chiton_mkdir(fs, b"/batch") == 0 and lib.chiton_stat(fs, b"/batch", ctypes.byref(attr)) == 0)
names = [Name(attr.ino, b"part-%d" % n) for n in range(1000)]
files = [File(name, WRITE | CREATE, 0o644, b"result", 6) for name in names]
made = batch(lib.chiton_openv, files)
closed = batch(lib.chiton_closev, [c_uint64(one.file) for one in made if one.error == 0])
print(f"made: {sum(one.error == 0 for one in closed)} files")
found = batch(lib.chiton_lookupv, names)
print(f"their content: {sum(one.attr.size for one in found)} bytes")
shorter = batch(lib.chiton_setattrv, [Change(found[0].attr.ino, 0, 10**9, 3, SET_SIZE | SET_ATIME)])
print(f"one of them: {shorter[0].attr.size} bytes")
paths = []
job = lib.chiton_start_find(fs, b"/batch", None)
need(job and lib.chiton_wait_find(fs, job, None, Found(lambda arg, path, attr: paths.append(path) or 0), None) == 0)
print(f"the server found: {len(paths)} names, {paths[0].decode()} first")
removed = batch(lib.chiton_unlinkv, names[:999] + [Name(attr.ino, b"absent")] + names[999:])
print(f"removed: {sum(one.error == 0 for one in removed)}, not there: {removed[999].error == errno.ENOENT}")
stopped = batch(lib.chiton_unlinkv, names[:2], STOP_ON_FAILURE)
print("stopped:", errno.errorcode[stopped[0].error], errno.errorcode[stopped[1].error])
need(lib.chiton_close(fs) == 0)
