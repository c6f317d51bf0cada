"""Makes a thousand files with content in one message, asks for their attributes in another, and removes them in a third.

    CHITON_LIBRARY=target/release/libchiton.so python3 batch.py unix:/srv/chiton/socket
"""
import ctypes, errno, os, sys
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

PERFORM_ALL, STOP_ON_FAILURE = 0, 1
READ, WRITE, CREATE, EXCLUSIVE, TRUNCATE = 1, 2, 4, 8, 16


class Attr(Structure):
    _fields_ = [("ino", c_uint64), ("size", c_uint64), ("mtime_ns", c_int64)]
    _fields_ += [(name, c_uint32) for name in ("mode", "nlink", "uid", "gid")]


class Name(Structure):
    _fields_ = [("dir", c_uint64), ("name", c_char_p)]


class File(Structure):
    _fields_ = [("at", Name), ("flags", c_uint32), ("mode", c_uint32), ("content", c_char_p), ("len", c_size_t)]


class Result(Structure):
    _fields_ = [("attr", Attr), ("file", c_uint64), ("error", c_int)]


lib = ctypes.CDLL(os.environ.get("CHITON_LIBRARY", "libchiton.so"))
lib.chiton_error.restype = c_char_p
lib.chiton_connect.restype = c_void_p
for call, item in [("openv", File), ("closev", c_uint64), ("lookupv", Name), ("unlinkv", Name)]:
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
removed = batch(lib.chiton_unlinkv, names[:999] + [Name(attr.ino, b"absent")] + names[999:])
print(f"removed: {sum(one.error == 0 for one in removed)}, not there: {removed[999].error == errno.ENOENT}")
stopped = batch(lib.chiton_unlinkv, names[:2], STOP_ON_FAILURE)
print("stopped:", errno.errorcode[stopped[0].error], errno.errorcode[stopped[1].error])
need(lib.chiton_close(fs) == 0)
