/* Chiton for programs in C.
 *
 * A handle is a file system, or a subtree of one in which a job works alone (chiton_decouple). The functions for files take
 * either: paths begin where the handle's do, with or without a '/'. docs/library.md has examples.
 *
 * Failures. Functions that return int return 0, or -1; those that return a handle, NULL. Then chiton_errno() is a number of
 * errno.h and chiton_error() a sentence, both of the last call of this thread that failed. A call that succeeds changes neither.
 *
 * Builds. A library that was built without the feature "embedded" refuses chiton_open and chiton_format, and one without
 * "decoupled" chiton_decouple (EOPNOTSUPP).
 *
 * Arguments. A pointer that must be there and is NULL is refused (EINVAL), and so is an address, a directory of this machine
 * or a policy that is not UTF-8. Paths are bytes, as everywhere in a file system. All text ends with NUL. The library keeps no
 * pointer of the caller's, and gives none away but handles and the text of chiton_error().
 *
 * Threads. All functions may be called by any number of threads at once, with the same handle. Only chiton_close must be the
 * last call with its handle. After fork() the child must not use the library.
 *
 * Users. The caller is the process: its effective user, group, and supplementary groups, as they were when the handle was made.
 */
#ifndef CHITON_H
#define CHITON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A file system, or a job's subtree of one. */
typedef struct chiton chiton;

/* A part of the attributes that stat(2) returns. */
struct chiton_attr {
    uint64_t ino;
    uint64_t size;    /* in bytes */
    int64_t mtime_ns; /* last change of content: nanoseconds since 1970 */
    uint32_t mode;    /* type and permissions, as st_mode has them */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
};

/* ---- coming and going --------------------------------------------------------------------------------------------- */

/* Connects to a server: "unix:/srv/chiton/socket", "tcp:host:7117". state_dir is a directory of this machine for the
 * journals of jobs, which a later process needs if this one dies (chiton recover merges or drops them); NULL: /var/lib/chiton
 * of root, else $XDG_STATE_HOME/chiton or ~/.local/state/chiton. Calls wait for a server that goes away later. */
chiton *chiton_connect(const char *address, const char *state_dir);

/* Opens a data directory (or s3://BUCKET/PREFIX), with the server inside this process. No other process can open it meanwhile (EBUSY),
 * or connect to it. If there is no file system the call fails (ENOENT): chiton_format makes one. */
chiton *chiton_open(const char *data, const char *state_dir);

/* Makes a new, empty file system in a directory that is empty or missing (or below s3://BUCKET/PREFIX); it belongs to the
 * caller. If the directory holds a file system or anything else, the call fails (ENOTEMPTY). */
int chiton_format(const char *data);

/* Closes a handle; it is closed even if the call fails. Closing a job merges its changes if its policy merges automatically. Otherwise
 * they wait in the job's journal for `chiton recover`, or are dropped if the job has no journal. Closing a file system closes all its jobs
 * in this way and makes everything durable. The handles of these jobs can no longer be used (ENOTCONN), but must still be closed. NULL is
 * no error. */
int chiton_close(chiton *handle);

/* The number and the text of this thread's last failure; 0 and "" if no call has failed. The text is valid until the next failure. */
int chiton_errno(void);
const char *chiton_error(void);

/* ---- files and directories ---------------------------------------------------------------------------------------- */

/* Makes a directory, and the missing directories above it, with permissions 0755. */
int chiton_mkdir(chiton *handle, const char *path);

/* Makes a file with this content and permissions 0644, or replaces the content of an existing file. A new file of up to 8 KiB is one
 * operation: nobody sees it without its content. */
int chiton_write(chiton *handle, const char *path, const void *content, size_t len);

/* Reads up to capacity bytes from offset into buffer. Returns the number of bytes read, which is smaller only at the end of the file. */
int64_t chiton_read(chiton *handle, const char *path, uint64_t offset, void *buffer, size_t capacity);

/* Attributes of the file or directory to which a path leads. */
int chiton_stat(chiton *handle, const char *path, struct chiton_attr *attr);

/* Calls entry for each entry of a directory except "." and "..", in no particular order, until entry returns anything but 0. The arguments
 * are valid until entry returns. It must return (no exceptions, no longjmp), and may call the library. */
typedef int chiton_entry_fn(void *arg, const char *name, const struct chiton_attr *attr);
int chiton_list(chiton *handle, const char *path, chiton_entry_fn *entry, void *arg);

/* Removes a file, a symbolic link or an empty directory. */
int chiton_remove(chiton *handle, const char *path);

/* Moves a file or directory to another path, and replaces a file or empty directory there, as rename(2). */
int chiton_rename(chiton *handle, const char *from, const char *to);

/* When this returns, all earlier operations through this handle are durable: for a file system, at the server; for a job that works
 * alone, in its journal, if its policy has one. */
int chiton_flush(chiton *handle);

/* ---- whole trees -------------------------------------------------------------------------------------------------- */

/* These work on everything at and below a path, many names in a message to the server, and follow no symbolic link. They are
 * not atomic: others see a tree half done. Refused names are left out, and the rest is done; then the call fails with the first
 * refusal. follow may be NULL. Otherwise the library calls it now and then with the number of names that are done, and for each refused
 * name with 0 names, its path and a number of errno.h. If it returns anything but 0, no further work begins, and the call fails (with
 * EINTR, unless a name was refused). It must return, and must not call the library. arg is passed to it unchanged. */
typedef int chiton_tree_fn(void *arg, uint64_t names, const char *refused, int error);

/* Removes a tree, or a file. On a file system with one plate root, and the owner of every directory in it, removes it as a whole
 * at once, and the server frees it later. */
int chiton_remove_tree(chiton *handle, const char *path, chiton_tree_fn *follow, void *arg);

/* Copies a tree, or a file, to a new path; a file or directory that exists there is not changed (EEXIST). Content in blocks is shared. */
int chiton_copy_tree(chiton *handle, const char *from, const char *to, chiton_tree_fn *follow, void *arg);

/* Gives everything but symbolic links these permissions: 12 bits, as chmod(2). */
int chiton_chmod_tree(chiton *handle, const char *path, uint32_t mode, chiton_tree_fn *follow, void *arg);

/* Gives everything this owner and group; (uint32_t)-1 leaves one as it is. */
int chiton_chown_tree(chiton *handle, const char *path, uint32_t uid, uint32_t gid, chiton_tree_fn *follow, void *arg);

/* The totals of a tree; a file with several names counts once. */
struct chiton_usage {
    uint64_t bytes;     /* sizes of files, and lengths of the targets of symbolic links */
    uint64_t allocated; /* bytes of content that are stored */
    uint64_t files;     /* all but directories */
    uint64_t dirs;
};
int chiton_usage(chiton *handle, const char *path, struct chiton_usage *usage, chiton_tree_fn *follow, void *arg);

/* Names at and below a path that meet conditions. by says which: CHITON_FIND_NAME and the others, added. conditions may be NULL: every name. */
enum {
    CHITON_FIND_NAME = 1,
    CHITON_FIND_TYPE = 2,
    CHITON_FIND_SIZE_MIN = 4,
    CHITON_FIND_SIZE_MAX = 8,
    CHITON_FIND_MTIME_MIN = 16,
    CHITON_FIND_MTIME_MAX = 32,
    CHITON_FIND_DEPTH_MAX = 64
};
struct chiton_conditions {
    const char *name;     /* the last component matches this pattern: *, ?, [a-z]; UTF-8 */
    uint64_t size_min;    /* at least so many bytes */
    uint64_t size_max;    /* at most so many */
    int64_t mtime_min_ns; /* content changed at this time or later */
    int64_t mtime_max_ns; /* or earlier */
    uint32_t by;
    uint32_t type;      /* S_IFREG, S_IFDIR or another, of sys/stat.h */
    uint32_t depth_max; /* directories are entered down to this depth; 0 looks at the path only */
};

/* Calls found for each name, a directory before the names in it, until it returns anything but 0 (EINTR). Its arguments are good until
 * it returns; it must return, and must not call the library. Names that the caller may not examine are left out; then the call fails
 * with the first refusal at the end. */
typedef int chiton_found_fn(void *arg, const char *path, const struct chiton_attr *attr);
int chiton_find(chiton *handle, const char *path, const struct chiton_conditions *conditions, chiton_found_fn *found, void *arg);

/* The same work done by the server, as a job. The call that starts it returns its number at once, or 0 if it fails (EOPNOTSUPP: the
 * server has no jobs, such as one inside this process; EBUSY: the server runs as many jobs as it allows). The job continues if this
 * process ends, ends with its server, and has the caller's rights. The handle must be a file system's. `chiton jobs` lists all jobs. */
uint64_t chiton_start_copy_tree(chiton *filesystem, const char *from, const char *to);
uint64_t chiton_start_chmod_tree(chiton *filesystem, const char *path, uint32_t mode);
uint64_t chiton_start_chown_tree(chiton *filesystem, const char *path, uint32_t uid, uint32_t gid);
uint64_t chiton_start_usage(chiton *filesystem, const char *path);
uint64_t chiton_start_remove_tree(chiton *filesystem, const char *path); /* name by name, with a report of what stays */
uint64_t chiton_start_find(chiton *filesystem, const char *path, const struct chiton_conditions *conditions);

/* STOPPED: the job's server stopped, or gave its plates away. (A job whose server died is ENOENT.) In both cases the job may be started
 * again; before a copy is started again, remove the part of it that exists. */
enum {
    CHITON_JOB_RUNNING = 0,
    CHITON_JOB_DONE = 1,
    CHITON_JOB_CANCELLED = 2,
    CHITON_JOB_FAILED = 3,
    CHITON_JOB_STOPPED = 4
};

/* The progress of a job. */
struct chiton_tree_job {
    uint64_t id;
    uint64_t names;            /* that are done */
    uint64_t refused;          /* that could not be done */
    uint64_t age_ms;           /* since it began */
    struct chiton_usage usage; /* at the end of a job of chiton_start_usage */
    uint32_t uid;              /* the user who started it */
    int state;                 /* CHITON_JOB_RUNNING and the others */
};

/* The present progress of a job. A job that no server knows (any more) is ENOENT, one of another user EPERM. */
int chiton_tree_job(chiton *filesystem, uint64_t id, struct chiton_tree_job *job);

/* Waits for the end of a job, and writes its last state to job unless that is NULL. follow is as above, and ends the job if it returns
 * anything but 0. The call fails with the first refusal, with EINTR for a job that was cancelled, and with EIO for one that failed. */
int chiton_wait_tree_job(chiton *filesystem, uint64_t id, struct chiton_tree_job *job, chiton_tree_fn *follow, void *arg);

/* The same for a job of chiton_start_find: found gets each name once, soon after the server has found it. A search that has found many
 * names waits for a call of this function, and ends if none comes for a minute. */
int chiton_wait_find(chiton *filesystem, uint64_t id, struct chiton_tree_job *job, chiton_found_fn *found, void *arg);

/* Ends a job early; its work so far stays. A job that is over does not change. */
int chiton_cancel_tree_job(chiton *filesystem, uint64_t id);

/* ---- batches ------------------------------------------------------------------------------------------------------ */

/* Many operations or questions in a message, on any mix of directories, with a result each in the order asked. Directories and files go by
 * their inode numbers, which results and chiton_stat have; symbolic links are not followed. A batch is not atomic. how selects the
 * treatment of failures: CHITON_PERFORM_ALL carries out all others, and keeps the order only of those on one plate;
 * CHITON_STOP_ON_FAILURE carries them out one after the other, and those behind the first failure have the error ECANCELED.
 * Each call returns the number of items that succeeded. It returns -1 only if its arguments or the handle cannot be used: then nothing
 * was done, and nothing is written to results. */
enum { CHITON_PERFORM_ALL = 0, CHITON_STOP_ON_FAILURE = 1 };

/* A name in a directory. */
struct chiton_name {
    uint64_t dir; /* its inode number */
    const char *name;
};

struct chiton_result {
    struct chiton_attr attr; /* of openv, statv, lookupv, setattrv */
    uint64_t file;           /* of openv */
    int error;               /* 0, or a number of errno.h */
};

/* Access to an open file, and flags of the open, as for open(2). CHITON_READ or CHITON_WRITE must be set. */
enum { CHITON_READ = 1, CHITON_WRITE = 2, CHITON_CREATE = 4, CHITON_EXCLUSIVE = 8, CHITON_TRUNCATE = 16 };

struct chiton_open_file {
    struct chiton_name at;
    uint32_t flags;
    uint32_t mode;       /* permissions of a file that is made */
    const void *content; /* and its content; NULL: none */
    size_t len;
};

/* Opens files, and with CHITON_CREATE makes those that are absent, with their content. With CHITON_STOP_ON_FAILURE each is a message of its
 * own. Every file that was opened has to be closed, through the same handle; those of a job's handle end when its mode changes. */
int64_t chiton_openv(chiton *handle, const struct chiton_open_file *files, size_t count, int how, struct chiton_result *results);

/* Read from and write to an open file, as pread(2) and pwrite(2). They return a number of bytes, which for a read is smaller only at the
 * end of the file. */
int64_t chiton_pread(chiton *handle, uint64_t file, uint64_t offset, void *buffer, size_t capacity);
int64_t chiton_pwrite(chiton *handle, uint64_t file, uint64_t offset, const void *content, size_t len);

/* Closes files; the server then has their content. The error of a written file may be that of storing its content. */
int64_t chiton_closev(chiton *handle, const uint64_t *files, size_t count, int how, struct chiton_result *results);

/* Attributes, by inode number (ESTALE: there is none) or by name (ENOENT). */
int64_t chiton_statv(chiton *handle, const uint64_t *inodes, size_t count, int how, struct chiton_result *results);
int64_t chiton_lookupv(chiton *handle, const struct chiton_name *names, size_t count, int how, struct chiton_result *results);

enum {
    CHITON_SET_MODE = 1,
    CHITON_SET_UID = 2,
    CHITON_SET_GID = 4,
    CHITON_SET_MTIME = 8,
    CHITON_SET_ATIME = 16,
    CHITON_SET_SIZE = 32
};

struct chiton_change {
    uint64_t ino;
    int64_t mtime_ns;
    int64_t atime_ns;
    uint64_t size;
    uint32_t set; /* the fields that are set: CHITON_SET_MODE and the others, added */
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
};

/* chmod, chown, utimensat (the times of the last change of content and of the last access) and truncate. A change of size is a message of
 * its own, sent in its place in the order. */
int64_t chiton_setattrv(chiton *handle, const struct chiton_change *changes, size_t count, int how, struct chiton_result *results);

/* Removes names of anything but directories. */
int64_t chiton_unlinkv(chiton *handle, const struct chiton_name *names, size_t count, int how, struct chiton_result *results);

struct chiton_link {
    uint64_t ino;
    struct chiton_name at;
};

/* Gives files further names. */
int64_t chiton_linkv(chiton *handle, const struct chiton_link *links, size_t count, int how, struct chiton_result *results);

/* ---- jobs --------------------------------------------------------------------------------------------------------- */

/* Decouples a directory for a job that works alone there: its operations cost no message, and others do not see its changes.
 * policy is the name of a policy that ships ("batchfs"; `chiton policy presets` lists them), or the text of one (docs/policies.md);
 * NULL selects the policy that holds for the directory. Returns another handle, whose paths begin at that directory. */
chiton *chiton_decouple(chiton *filesystem, const char *path, const char *policy);

/* Merges the changes so far, so that others see them; the job continues to work alone. */
int chiton_sync(chiton *job);

/* With on = 1, all earlier changes are merged, visible to all clients and durable when this returns. From then on each call through the
 * same handle is visible to all clients when it returns. With on = 0 the job works alone again, under the same policy. If the policy
 * forbids conflicts (on_conflict: abort) and there is one, the call fails with EEXIST: the job then works alone as before, and the text
 * names the paths. */
int chiton_sync_mode(chiton *job, int on);

/* Returns 1 if the job is synchronous, 0 if it works alone, and -1 if the handle is not a job's. */
int chiton_is_synchronous(chiton *job);

/* As chiton_sync_mode(job, 1): the end of the work alone. */
int chiton_merge(chiton *job);

/* Drops the changes that were not merged; the job continues as after chiton_merge. */
int chiton_discard(chiton *job);

#ifdef __cplusplus
}
#endif

#endif
