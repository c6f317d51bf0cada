"""A client of NFS 4 through libnfs, for one figure: python3 nfs-creates.py PORT RANK FILES.

It connects, says so, and waits for a line. Then it creates empty files in the directory of the export, each after the other, and says when it is done.
"""

import ctypes
import sys

LIBRARY = "libnfs.so.13"
HOST, EXPORT = b"127.0.0.1", b"/export"


def main(port, rank, files):
    nfs = ctypes.CDLL(LIBRARY)
    nfs.nfs_init_context.restype = ctypes.c_void_p
    nfs.nfs_parse_url_full.restype = ctypes.c_void_p
    nfs.nfs_get_error.restype = ctypes.c_char_p
    context = ctypes.c_void_p(nfs.nfs_init_context())

    def done(what, status):
        if status:
            sys.exit(f"{what}: {nfs.nfs_get_error(context).decode()}")

    # This alone sets the port.
    url = b"nfs://%s%s/file?version=4&nfsport=%d" % (HOST, EXPORT, port)
    done("cannot read the address", not nfs.nfs_parse_url_full(context, url))
    done("cannot mount", nfs.nfs_mount(context, HOST, EXPORT))
    print("connected", flush=True)
    sys.stdin.readline()
    handle = ctypes.c_void_p()
    for number in range(files):
        name = b"/file.%d.%d" % (rank, number)
        done(f"cannot create {name.decode()}", nfs.nfs_creat(context, name, 0o644, ctypes.byref(handle)))
        done(f"cannot close {name.decode()}", nfs.nfs_close(context, handle))
    print("done", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
