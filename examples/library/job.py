"""Makes 100 files in a directory of its own, alone, and then lets everybody see them.

    CHITON_LIBRARY=target/release/libchiton.so python3 job.py unix:/srv/chiton/socket [STATE_DIR]
"""
import ctypes, os, sys

lib = ctypes.CDLL(os.environ.get("CHITON_LIBRARY", "libchiton.so"))
lib.chiton_error.restype = ctypes.c_char_p
lib.chiton_connect.restype = lib.chiton_decouple.restype = ctypes.c_void_p
Entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def need(is_good):
    if not is_good:
        raise OSError(lib.chiton_errno(), lib.chiton_error().decode())


if len(sys.argv) < 2:
    sys.exit("usage: job.py ADDRESS [STATE_DIR]")
state_dir = os.fsencode(sys.argv[2]) if len(sys.argv) > 2 else None
fs = ctypes.c_void_p(lib.chiton_connect(sys.argv[1].encode(), state_dir))
need(fs and lib.chiton_mkdir(fs, b"/results") == 0)
job = ctypes.c_void_p(lib.chiton_decouple(fs, b"/results", b"batchfs"))
need(job)
for n in range(100):
    text = b"result %d\n" % n
    need(lib.chiton_write(job, b"/part-%d" % n, text, ctypes.c_size_t(len(text))) == 0)
attr = (ctypes.c_uint64 * 5)()
is_seen = lib.chiton_stat(fs, b"/results/part-7", attr) == 0
print("before the merge:", "seen" if is_seen else os.strerror(lib.chiton_errno()))
names = []
note = Entry(lambda _arg, name, _attr: names.append(name) or 0)
need(lib.chiton_merge(job) == 0 and lib.chiton_list(fs, b"/results", note, None) == 0)
print(f"after the merge: {len(names)} files")
need(lib.chiton_close(job) == 0)
need(lib.chiton_close(fs) == 0)
