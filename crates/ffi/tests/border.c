/* What the library does at its border: each check that fails says its line. Called with a data directory, a state directory,
 * and the sizes that Rust has for struct chiton_attr. */
#include <chiton.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(what)                                                                          \
    do {                                                                                     \
        if (!(what)) {                                                                       \
            fprintf(stderr, "line %d: %s (%d: %s)\n", __LINE__, #what, chiton_errno(), chiton_error()); \
            failures++;                                                                      \
        }                                                                                    \
    } while (0)
#define REFUSED(call, number, word) \
    CHECK((call) && chiton_errno() == (number) && strstr(chiton_error(), (word)) != NULL)

static chiton *fs;

struct seen {
    int count, stop_at, nested;
    char last[256];
};

static int see(void *arg, const char *name, const struct chiton_attr *attr) {
    struct seen *seen = arg;
    struct chiton_attr again;
    char path[300];
    snprintf(path, sizeof path, "/dir/%s", name);
    /* The library may be called from here. */
    seen->nested += chiton_stat(fs, path, &again) == 0 && again.ino == attr->ino && again.mode == attr->mode;
    snprintf(seen->last, sizeof seen->last, "%s", name);
    return ++seen->count == seen->stop_at;
}

/* The last failure is a thread's own. */
static void *elsewhere(void *good) {
    *(int *)good = chiton_errno() == 0 && chiton_error()[0] == '\0';
    *(int *)good &= chiton_mkdir(fs, NULL) == -1 && chiton_errno() == EINVAL;
    return NULL;
}

static void nulls(chiton *job) {
    struct chiton_attr attr;
    char buffer[4];
    REFUSED(chiton_connect(NULL, NULL) == NULL, EINVAL, "address is NULL");
    REFUSED(chiton_connect("no address", NULL) == NULL, EINVAL, "no address");
    REFUSED(chiton_connect("unix:/\xff", NULL) == NULL, EINVAL, "UTF-8");
    REFUSED(chiton_open(NULL, NULL) == NULL, EINVAL, "NULL");
    REFUSED(chiton_format(NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_open("/\xff", NULL) == NULL, EINVAL, "UTF-8");
    REFUSED(chiton_open("/tmp", "\xff") == NULL, EINVAL, "UTF-8");
    REFUSED(chiton_mkdir(NULL, "/a") == -1, EINVAL, "handle is NULL");
    REFUSED(chiton_write(NULL, "/a", "", 0) == -1, EINVAL, "handle is NULL");
    REFUSED(chiton_write(fs, NULL, "", 0) == -1, EINVAL, "path is NULL");
    REFUSED(chiton_write(fs, "/a", NULL, 1) == -1, EINVAL, "buffer is NULL");
    REFUSED(chiton_write(fs, "/a", "", (size_t)-1) == -1, EINVAL, "impossible");
    REFUSED(chiton_read(fs, "/a", 0, NULL, 1) == -1, EINVAL, "buffer is NULL");
    REFUSED(chiton_read(fs, NULL, 0, buffer, 1) == -1, EINVAL, "path is NULL");
    REFUSED(chiton_stat(fs, "/", NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_stat(NULL, "/", &attr) == -1, EINVAL, "NULL");
    REFUSED(chiton_list(fs, "/", NULL, NULL) == -1, EINVAL, "function is NULL");
    REFUSED(chiton_remove(fs, NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_rename(fs, "/a", NULL) == -1, EINVAL, "new path is NULL");
    REFUSED(chiton_flush(NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_decouple(fs, NULL, NULL) == NULL, EINVAL, "NULL");
    REFUSED(chiton_decouple(fs, "/dir", "\xff") == NULL, EINVAL, "UTF-8");
    REFUSED(chiton_decouple(job, "/", NULL) == NULL, EINVAL, "job");
    REFUSED(chiton_merge(NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_merge(fs) == -1, EINVAL, "chiton_decouple");
    REFUSED(chiton_is_synchronous(fs) == -1, EINVAL, "chiton_decouple");
    CHECK(chiton_close(NULL) == 0);
}

static void files(void) {
    struct chiton_attr attr;
    static char large[300000], found[sizeof large + 9];
    memset(large, 'x', sizeof large);
    CHECK(chiton_mkdir(fs, "/dir/sub") == 0);
    CHECK(chiton_write(fs, "/dir/a", "first", 5) == 0 && chiton_write(fs, "/dir/a", "2", 1) == 0);
    CHECK(chiton_read(fs, "/dir/a", 0, found, sizeof found) == 1 && found[0] == '2');
    CHECK(chiton_write(fs, "/dir/large", large, sizeof large) == 0);
    CHECK(chiton_read(fs, "/dir/large", 0, found, sizeof found) == sizeof large);
    CHECK(memcmp(found, large, sizeof large) == 0);
    CHECK(chiton_read(fs, "/dir/large", sizeof large - 2, found, 9) == 2);
    CHECK(chiton_read(fs, "/dir/large", sizeof large, found, 9) == 0);
    CHECK(chiton_write(fs, "/dir/empty", NULL, 0) == 0 && chiton_read(fs, "/dir/empty", 0, NULL, 0) == 0);
    CHECK(chiton_stat(fs, "/dir/large", &attr) == 0 && attr.size == sizeof large && attr.mode == 0100644);
    CHECK(attr.nlink == 1 && attr.mtime_ns > 0);
    CHECK(chiton_stat(fs, "/dir/sub", &attr) == 0 && attr.mode == 040755);
    /* A name is bytes. */
    CHECK(chiton_rename(fs, "/dir/empty", "/dir/\xff") == 0 && chiton_stat(fs, "/dir/\xff", &attr) == 0);
    struct seen seen = {0};
    CHECK(chiton_list(fs, "/dir", see, &seen) == 0 && seen.count == 4 && seen.nested == 4);
    struct seen one = {.stop_at = 1};
    CHECK(chiton_list(fs, "/dir", see, &one) == 0 && one.count == 1);
    CHECK(chiton_remove(fs, "/dir/\xff") == 0 && chiton_remove(fs, "/dir/sub") == 0);
    REFUSED(chiton_remove(fs, "/dir/sub") == -1, ENOENT, "chiton_remove /dir/sub: no such file");
    REFUSED(chiton_remove(fs, "/dir") == -1, ENOTEMPTY, "/dir");
    REFUSED(chiton_read(fs, "/dir", 0, found, 1) == -1, EISDIR, "/dir");
    CHECK(chiton_flush(fs) == 0 && chiton_errno() == EISDIR);
    int good = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, elsewhere, &good) == 0 && pthread_join(thread, NULL) == 0 && good);
    CHECK(chiton_errno() == EISDIR);
}

struct followed {
    int names, refused, stops;
    char path[256];
    int error;
};

static int follow(void *arg, uint64_t names, const char *refused, int error) {
    struct followed *followed = arg;
    followed->names += refused == NULL && names > 0;
    if (refused != NULL) {
        followed->refused++;
        followed->error = error;
        snprintf(followed->path, sizeof followed->path, "%s", refused);
    }
    return followed->stops;
}

static void trees(void) {
    struct chiton_attr attr;
    struct chiton_usage usage;
    struct followed seen = {0};
    char path[64];
    CHECK(chiton_mkdir(fs, "/tree/a/b") == 0);
    for (int n = 0; n < 20; n++) {
        snprintf(path, sizeof path, "/tree/a/%d", n);
        CHECK(chiton_write(fs, path, "12345", 5) == 0);
    }
    CHECK(chiton_usage(fs, "/tree", &usage, follow, &seen) == 0 && seen.names > 0 && seen.refused == 0);
    CHECK(usage.files == 20 && usage.dirs == 3 && usage.bytes >= 100);
    CHECK(chiton_copy_tree(fs, "/tree", "/copy", NULL, NULL) == 0);
    CHECK(chiton_stat(fs, "/copy/a/19", &attr) == 0 && attr.size == 5 && attr.mode == 0100644);
    /* What is there already is not changed. */
    REFUSED(chiton_copy_tree(fs, "/tree/a", "/copy/a", follow, &seen) == -1, EEXIST, "/tree/a");
    CHECK(seen.refused == 1 && seen.error == EEXIST && strcmp(seen.path, "/tree/a") == 0);
    REFUSED(chiton_copy_tree(fs, "/tree", "/tree/a/inside", NULL, NULL) == -1, EINVAL, "itself");
    REFUSED(chiton_copy_tree(fs, "/tree", "/", NULL, NULL) == -1, EEXIST, "chiton_copy_tree /");
    CHECK(chiton_chmod_tree(fs, "/copy", 0700, NULL, NULL) == 0);
    CHECK(chiton_stat(fs, "/copy/a/b", &attr) == 0 && attr.mode == 040700);
    CHECK(chiton_stat(fs, "/copy/a/7", &attr) == 0 && attr.mode == 0100700);
    CHECK(chiton_chown_tree(fs, "/copy", (uint32_t)-1, attr.gid, NULL, NULL) == 0);
    CHECK(chiton_stat(fs, "/copy/a/7", &attr) == 0);
    struct followed stops = {.stops = 1};
    REFUSED(chiton_chmod_tree(fs, "/copy", 0755, follow, &stops) == -1, EINTR, "/copy");
    CHECK(chiton_remove_tree(fs, "/copy", NULL, NULL) == 0 && chiton_stat(fs, "/copy", &attr) == -1);
    CHECK(chiton_remove_tree(fs, "/tree/a/3", NULL, NULL) == 0);
    CHECK(chiton_stat(fs, "/tree/a/3", &attr) == -1 && chiton_stat(fs, "/tree/a/4", &attr) == 0);
    REFUSED(chiton_remove_tree(fs, "/copy", NULL, NULL) == -1, ENOENT, "/copy");
    REFUSED(chiton_remove_tree(fs, NULL, NULL, NULL) == -1, EINVAL, "path is NULL");
    REFUSED(chiton_copy_tree(fs, "/tree", NULL, NULL, NULL) == -1, EINVAL, "new path is NULL");
    REFUSED(chiton_usage(fs, "/tree", NULL, NULL, NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_chmod_tree(NULL, "/tree", 0, NULL, NULL) == -1, EINVAL, "handle is NULL");
    REFUSED(chiton_chown_tree(NULL, "/tree", 0, 0, NULL, NULL) == -1, EINVAL, "handle is NULL");
}

static void modes(chiton *job) {
    struct chiton_attr attr;
    CHECK(chiton_write(job, "/f", "1", 1) == 0 && chiton_is_synchronous(job) == 0);
    REFUSED(chiton_stat(fs, "/job/f", &attr) == -1, ENOENT, "/job/f");
    CHECK(chiton_sync(job) == 0 && chiton_stat(fs, "/job/f", &attr) == 0);
    CHECK(chiton_write(job, "/g", "1", 1) == 0 && chiton_flush(job) == 0);
    CHECK(chiton_sync_mode(job, 1) == 0 && chiton_is_synchronous(job) == 1);
    CHECK(chiton_stat(fs, "/job/g", &attr) == 0);
    CHECK(chiton_write(job, "/h", "1", 1) == 0 && chiton_stat(fs, "/job/h", &attr) == 0);
    CHECK(chiton_sync_mode(job, 0) == 0 && chiton_is_synchronous(job) == 0);
    CHECK(chiton_write(job, "/i", "1", 1) == 0 && chiton_discard(job) == 0);
    CHECK(chiton_stat(job, "/i", &attr) == -1 && chiton_errno() == ENOENT);
    /* Both sides made it. */
    CHECK(chiton_sync_mode(job, 0) == 0);
    CHECK(chiton_write(job, "/both", "ours", 4) == 0 && chiton_write(fs, "/job/both", "theirs", 6) == 0);
    REFUSED(chiton_merge(job) == -1, EEXIST, "both");
    CHECK(chiton_is_synchronous(job) == 0 && chiton_remove(job, "/both") == 0 && chiton_merge(job) == 0);
}

int main(int argc, char **argv) {
    struct chiton_attr attr;
    if (argc != 10) return 2;
    const size_t layout[] = {sizeof attr, offsetof(struct chiton_attr, size), offsetof(struct chiton_attr, mtime_ns),
        offsetof(struct chiton_attr, mode), offsetof(struct chiton_attr, nlink), offsetof(struct chiton_attr, uid),
        offsetof(struct chiton_attr, gid)};
    for (int n = 0; n < 7; n++) CHECK(layout[n] == (size_t)atol(argv[3 + n]));

    CHECK(chiton_errno() == 0 && chiton_error()[0] == '\0');
    REFUSED(chiton_open(argv[1], argv[2]) == NULL, ENOENT, "holds no file system");
    CHECK(chiton_format(argv[1]) == 0);
    REFUSED(chiton_format(argv[1]) == -1, ENOTEMPTY, "already");
    fs = chiton_open(argv[1], argv[2]);
    CHECK(fs != NULL);
    REFUSED(chiton_open(argv[1], argv[2]) == NULL, EBUSY, "in use");
    files();
    trees();
    CHECK(chiton_mkdir(fs, "/job") == 0);
    REFUSED(chiton_decouple(fs, "/job", NULL) == NULL, EINVAL, "strong");
    REFUSED(chiton_decouple(fs, "/job", "no: policy") == NULL, EINVAL, "policy");
    REFUSED(chiton_decouple(fs, "/absent", "batchfs") == NULL, ENOENT, "/absent");
    chiton *job = chiton_decouple(fs, "/job", "consistency: weak\ndurability: local\non_conflict: abort\n");
    CHECK(job != NULL);
    nulls(job);
    modes(job);
    CHECK(chiton_sync_mode(job, 0) == 0 && chiton_write(job, "/last", "1", 1) == 0);
    /* In the wrong order: what the job did is merged all the same, and its handle is of no more use. */
    CHECK(chiton_close(fs) == 0);
    REFUSED(chiton_write(job, "/later", "1", 1) == -1, ENOTCONN, "closed");
    CHECK(chiton_close(job) == 0);
    fs = chiton_open(argv[1], argv[2]);
    CHECK(fs != NULL && chiton_stat(fs, "/job/last", &attr) == 0 && chiton_stat(fs, "/dir/large", &attr) == 0);
    CHECK(chiton_close(fs) == 0);
    if (failures == 0) printf("the border holds\n");
    return failures != 0;
}
