/* Batches with results of both kinds, and jobs of the server: each check that fails says its line. Called with the address of a
 * server that has jobs. */
#include <chiton.h>
#include <errno.h>
#include <stdio.h>
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
#define ERRORS(a, b, c, d) \
    CHECK(r[0].error == (a) && r[1].error == (b) && r[2].error == (c) && r[3].error == (d))

static chiton *fs;
static uint64_t dir, other;
static struct chiton_result r[4];

static uint64_t ino(const char *path) {
    struct chiton_attr attr = {0};
    CHECK(chiton_stat(fs, path, &attr) == 0);
    return attr.ino;
}

static void opens(void) {
    static char large[100000];
    char buffer[8] = "";
    memset(large, 'x', sizeof large);
    struct chiton_open_file files[4] = {
        {{dir, "new"}, CHITON_WRITE | CHITON_CREATE, 0640, "content", 7},
        {{dir, "absent"}, CHITON_READ, 0, NULL, 0},
        {{dir, "a/b"}, CHITON_READ | CHITON_CREATE, 0600, NULL, 0},
        {{other, "large"}, CHITON_READ | CHITON_CREATE, 0600, large, sizeof large},
    };
    CHECK(chiton_openv(fs, files, 4, CHITON_PERFORM_ALL, r) == 2);
    ERRORS(0, ENOENT, EINVAL, 0);
    CHECK(r[0].attr.size == 7 && (r[0].attr.mode & 07777) == 0640 && r[3].attr.size == sizeof large);
    CHECK(chiton_pwrite(fs, r[0].file, 3, "TENT", 4) == 4);
    CHECK(chiton_pread(fs, r[3].file, sizeof large - 2, buffer, 8) == 2 && memcmp(buffer, "xx", 2) == 0);
    REFUSED(chiton_pread(fs, r[3].file + 1000, 0, buffer, 8) == -1, EBADF, "chiton_pread");
    REFUSED(chiton_pwrite(fs, r[0].file, 0, NULL, 4) == -1, EINVAL, "NULL");
    uint64_t open[4] = {r[0].file, 999999, r[3].file, 999999};
    CHECK(chiton_closev(fs, open, 4, CHITON_PERFORM_ALL, r) == 2);
    ERRORS(0, EBADF, 0, EBADF);
    CHECK(chiton_read(fs, "/dir/new", 0, buffer, 7) == 7 && memcmp(buffer, "conTENT", 7) == 0);

    /* Nothing behind the first failure is opened or made. */
    files[0].flags |= CHITON_EXCLUSIVE;
    files[0].at.name = "newer";
    files[1] = (struct chiton_open_file){{dir, "new"}, CHITON_WRITE | CHITON_CREATE | CHITON_EXCLUSIVE, 0, NULL, 0};
    files[2] = (struct chiton_open_file){{dir, "never"}, CHITON_WRITE | CHITON_CREATE, 0600, NULL, 0};
    CHECK(chiton_openv(fs, files, 4, CHITON_STOP_ON_FAILURE, r) == 1);
    ERRORS(0, EEXIST, ECANCELED, ECANCELED);
    struct chiton_attr attr;
    CHECK(chiton_stat(fs, "/dir/never", &attr) == -1);
    uint64_t stops[2] = {999999, r[0].file};
    CHECK(chiton_closev(fs, stops, 2, CHITON_STOP_ON_FAILURE, r) == 0 && r[0].error == EBADF && r[1].error == ECANCELED);
    CHECK(chiton_closev(fs, stops + 1, 1, CHITON_STOP_ON_FAILURE, r) == 1);
    files[0].flags = CHITON_CREATE;
    files[1].flags = 1024;
    CHECK(chiton_openv(fs, files, 2, CHITON_PERFORM_ALL, r) == 0 && r[0].error == EINVAL && r[1].error == EINVAL);
    REFUSED(chiton_openv(fs, files, 1, 7, r) == -1, EINVAL, "no way");
    REFUSED(chiton_openv(fs, NULL, 1, 0, r) == -1, EINVAL, "NULL");
    REFUSED(chiton_openv(fs, files, 1, 0, NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_openv(NULL, files, 1, 0, r) == -1, EINVAL, "handle is NULL");
    CHECK(chiton_openv(fs, NULL, 0, 0, NULL) == 0);
}

static void questions(void) {
    uint64_t inodes[4] = {ino("/dir/new"), 1ull << 40, dir, ino("/other/large")};
    CHECK(chiton_statv(fs, inodes, 4, CHITON_PERFORM_ALL, r) == 3);
    ERRORS(0, ESTALE, 0, 0);
    CHECK(r[0].attr.size == 7 && r[2].attr.ino == dir && r[3].attr.size == 100000);
    CHECK(chiton_statv(fs, inodes, 4, CHITON_STOP_ON_FAILURE, r) == 1);
    ERRORS(0, ESTALE, ECANCELED, ECANCELED);
    struct chiton_name names[4] = {{dir, "new"}, {dir, "absent"}, {dir, NULL}, {other, "large"}};
    CHECK(chiton_lookupv(fs, names, 4, CHITON_PERFORM_ALL, r) == 2);
    ERRORS(0, ENOENT, EINVAL, 0);
    CHECK(r[0].attr.ino == inodes[0] && r[3].attr.ino == inodes[3]);
    CHECK(chiton_lookupv(fs, names, 4, CHITON_STOP_ON_FAILURE, r) == 1);
    ERRORS(0, ENOENT, ECANCELED, ECANCELED);
}

static void changes(void) {
    uint64_t new = ino("/dir/new");
    struct chiton_link links[4] = {{new, {dir, "x"}}, {new, {dir, "new"}}, {1ull << 40, {dir, "y"}}, {new, {other, "z"}}};
    CHECK(chiton_linkv(fs, links, 4, CHITON_PERFORM_ALL, r) == 2);
    ERRORS(0, EEXIST, ESTALE, 0);
    links[0].at.name = "w";
    links[3].at.name = "v";
    CHECK(chiton_linkv(fs, links, 4, CHITON_STOP_ON_FAILURE, r) == 1);
    ERRORS(0, EEXIST, ECANCELED, ECANCELED);
    struct chiton_change changed[4] = {
        {.ino = new, .set = CHITON_SET_MODE | CHITON_SET_MTIME, .mode = 0604, .mtime_ns = 5},
        {.ino = 1ull << 40, .set = CHITON_SET_MODE, .mode = 0600},
        {.ino = new, .set = 64},
        {.ino = dir, .set = CHITON_SET_MODE, .mode = 0711},
    };
    CHECK(chiton_setattrv(fs, changed, 4, CHITON_PERFORM_ALL, r) == 2);
    ERRORS(0, ESTALE, EINVAL, 0);
    CHECK((r[0].attr.mode & 07777) == 0604 && r[0].attr.mtime_ns == 5 && r[0].attr.nlink == 4);
    CHECK(chiton_setattrv(fs, changed, 4, CHITON_STOP_ON_FAILURE, r) == 1);
    ERRORS(0, ESTALE, ECANCELED, ECANCELED);
    struct chiton_name names[4] = {{dir, "x"}, {dir, "absent"}, {dir, "sub"}, {other, "z"}};
    CHECK(chiton_unlinkv(fs, names, 4, CHITON_STOP_ON_FAILURE, r) == 1);
    ERRORS(0, ENOENT, ECANCELED, ECANCELED);
    CHECK(chiton_unlinkv(fs, names, 4, CHITON_PERFORM_ALL, r) == 1);
    ERRORS(ENOENT, ENOENT, EISDIR, 0);
}

/* Sizes and both times, in the order asked. */
static void sizes(void) {
    uint64_t new = ino("/dir/new"), large = ino("/other/large");
    char buffer[8] = "";
    struct chiton_change changed[4] = {
        {.ino = large, .set = CHITON_SET_ATIME, .atime_ns = 77},
        {.ino = large, .set = CHITON_SET_SIZE | CHITON_SET_MTIME, .size = 3, .mtime_ns = 99},
        {.ino = 1ull << 40, .set = CHITON_SET_SIZE},
        {.ino = new, .set = CHITON_SET_SIZE | CHITON_SET_MODE, .size = 4, .mode = 0600},
    };
    CHECK(chiton_setattrv(fs, changed, 4, CHITON_STOP_ON_FAILURE, r) == 2);
    ERRORS(0, 0, ESTALE, ECANCELED);
    CHECK(r[0].attr.size == 100000 && r[1].attr.size == 3 && r[1].attr.mtime_ns == 99);
    CHECK(chiton_setattrv(fs, changed, 4, CHITON_PERFORM_ALL, r) == 3);
    ERRORS(0, 0, ESTALE, 0);
    CHECK(r[3].attr.size == 4 && (r[3].attr.mode & 07777) == 0600);
    CHECK(chiton_read(fs, "/dir/new", 0, buffer, 8) == 4 && memcmp(buffer, "conT", 4) == 0);
    /* Longer, with zeros, and as it was for the tests that follow. */
    changed[3].size = 7;
    changed[3].mode = 0604;
    CHECK(chiton_setattrv(fs, changed + 3, 1, CHITON_PERFORM_ALL, r) == 1 && r[0].attr.size == 7);
    CHECK(chiton_read(fs, "/dir/new", 0, buffer, 8) == 7 && memcmp(buffer, "conT\0\0", 7) == 0);
    struct chiton_attr attr;
    CHECK(chiton_stat(fs, "/other/large", &attr) == 0 && attr.size == 3 && attr.mtime_ns == 99);
    changed[0].set = CHITON_SET_SIZE | 128;
    CHECK(chiton_setattrv(fs, changed, 1, CHITON_PERFORM_ALL, r) == 0 && r[0].error == EINVAL);
}

/* More than a message holds. */
static void many(void) {
    enum { COUNT = 2500 };
    static struct chiton_open_file files[COUNT];
    static struct chiton_name at[COUNT];
    static struct chiton_result each[COUNT];
    static uint64_t open[COUNT];
    static char names[COUNT][16];
    for (int n = 0; n < COUNT; n++) {
        snprintf(names[n], sizeof names[n], "many-%d", n % 2 ? n : n / 4 * 4);
        at[n] = (struct chiton_name){dir, names[n]};
        files[n] = (struct chiton_open_file){at[n], CHITON_READ | CHITON_CREATE | CHITON_EXCLUSIVE, 0600, "12345", 5};
    }
    /* Of each four names two are the same: the second is there already. */
    CHECK(chiton_openv(fs, files, COUNT, CHITON_PERFORM_ALL, each) == COUNT / 4 * 3);
    int opened = 0;
    for (int n = 0; n < COUNT; n++) {
        CHECK(each[n].error == (n % 4 == 2 ? EEXIST : 0));
        if (each[n].error == 0) open[opened++] = each[n].file;
    }
    CHECK(chiton_closev(fs, open, opened, CHITON_PERFORM_ALL, each) == opened);
    CHECK(chiton_unlinkv(fs, at, COUNT, CHITON_PERFORM_ALL, each) == COUNT / 4 * 3);
    CHECK(each[1].error == 0 && each[2].error == ENOENT && each[COUNT - 1].error == 0);
}

static int stop(void *arg, uint64_t names, const char *refused, int error) {
    (void)names, (void)refused, (void)error;
    return *(int *)arg;
}

struct seen {
    int count, most;
    uint64_t bytes;
    char last[256];
};

static int see(void *arg, const char *path, const struct chiton_attr *attr) {
    struct seen *seen = arg;
    seen->count++;
    seen->bytes += attr->size;
    snprintf(seen->last, sizeof seen->last, "%s", path);
    return seen->count >= seen->most;
}

static void searches(void) {
    struct chiton_tree_job job = {0};
    struct seen all = {.most = 1000}, some = {.most = 1000}, by_job = {.most = 1000}, one = {.most = 1};
    struct chiton_conditions conditions = {.name = "n?w", .type = 0100000, .size_min = 7, .size_max = 7, .depth_max = 1};
    CHECK(chiton_find(fs, "/dir", NULL, see, &all) == 0 && all.count == 5);
    conditions.by = CHITON_FIND_NAME | CHITON_FIND_TYPE | CHITON_FIND_SIZE_MIN | CHITON_FIND_SIZE_MAX | CHITON_FIND_DEPTH_MAX;
    CHECK(chiton_find(fs, "/dir", &conditions, see, &some) == 0 && some.count == 1);
    CHECK(strcmp(some.last, "/dir/new") == 0 && some.bytes == 7);
    uint64_t id = chiton_start_find(fs, "/dir", &conditions);
    CHECK(id > 0 && chiton_wait_find(fs, id, &job, see, &by_job) == 0 && job.state == CHITON_JOB_DONE);
    CHECK(by_job.count == 1 && strcmp(by_job.last, "/dir/new") == 0 && job.names == 5);
    REFUSED(chiton_find(fs, "/dir", NULL, see, &one) == -1, EINTR, "/dir");
    CHECK(one.count == 1 && chiton_find(fs, "/dir", NULL, NULL, NULL) == 0);
    conditions.by = CHITON_FIND_MTIME_MAX;
    conditions.mtime_max_ns = 0;
    some.count = 0;
    CHECK(chiton_find(fs, "/dir", &conditions, see, &some) == 0 && some.count == 0);
    conditions.by = CHITON_FIND_MTIME_MIN;
    conditions.mtime_min_ns = 1;
    CHECK(chiton_find(fs, "/dir", &conditions, see, &some) == 0 && some.count == 5);
    conditions = (struct chiton_conditions){.by = 128};
    REFUSED(chiton_find(fs, "/dir", &conditions, see, &one) == -1, EINVAL, "no sum");
    conditions = (struct chiton_conditions){.by = CHITON_FIND_NAME, .name = "a["};
    REFUSED(chiton_start_find(fs, "/dir", &conditions) == 0, EINVAL, "pattern");
    conditions = (struct chiton_conditions){.by = CHITON_FIND_NAME};
    REFUSED(chiton_find(fs, "/dir", &conditions, see, &one) == -1, EINVAL, "pattern is NULL");
    conditions = (struct chiton_conditions){.by = CHITON_FIND_TYPE, .type = 7};
    REFUSED(chiton_find(fs, "/dir", &conditions, see, &one) == -1, EINVAL, "no type");
    REFUSED(chiton_find(fs, "/absent", NULL, see, &one) == -1, ENOENT, "/absent");
    REFUSED(chiton_wait_find(fs, id + 1, &job, see, &one) == -1, ENOENT, "chiton_wait_find");
    REFUSED(chiton_wait_find(NULL, id, &job, see, &one) == -1, EINVAL, "handle is NULL");
}

static void jobs(void) {
    struct chiton_tree_job job = {0};
    struct chiton_attr attr;
    int goes_on = 0;
    uint64_t id = chiton_start_copy_tree(fs, "/dir", "/copy");
    CHECK(id > 0 && chiton_wait_tree_job(fs, id, &job, stop, &goes_on) == 0);
    CHECK(job.id == id && job.state == CHITON_JOB_DONE && job.names > 0 && job.refused == 0);
    CHECK(chiton_stat(fs, "/copy/new", &attr) == 0 && attr.size == 7);
    id = chiton_start_copy_tree(fs, "/dir", "/copy");
    REFUSED(chiton_wait_tree_job(fs, id, &job, NULL, NULL) == -1, EEXIST, "/dir");
    CHECK(job.state == CHITON_JOB_DONE && job.refused == 1);
    id = chiton_start_chmod_tree(fs, "/copy", 0700);
    CHECK(chiton_wait_tree_job(fs, id, NULL, NULL, NULL) == 0);
    CHECK(chiton_stat(fs, "/copy/new", &attr) == 0 && (attr.mode & 07777) == 0700);
    id = chiton_start_chown_tree(fs, "/copy", (uint32_t)-1, attr.gid);
    CHECK(chiton_wait_tree_job(fs, id, NULL, NULL, NULL) == 0);
    id = chiton_start_usage(fs, "/copy");
    CHECK(chiton_wait_tree_job(fs, id, &job, NULL, NULL) == 0 && job.usage.dirs == 2 && job.usage.bytes >= 7);
    CHECK(chiton_cancel_tree_job(fs, id) == 0 && chiton_tree_job(fs, id, &job) == 0 && job.state == CHITON_JOB_DONE);
    CHECK(chiton_mkdir(fs, "/gone/sub") == 0 && (id = chiton_start_remove_tree(fs, "/gone")) > 0);
    CHECK(chiton_wait_tree_job(fs, id, &job, NULL, NULL) == 0 && job.state == CHITON_JOB_DONE);
    CHECK(chiton_stat(fs, "/gone", &attr) == -1 && chiton_errno() == ENOENT);
    REFUSED(chiton_start_remove_tree(fs, "/") == 0, EBUSY, "/");
    REFUSED(chiton_tree_job(fs, id + 1, &job) == -1, ENOENT, "chiton_tree_job");
    REFUSED(chiton_tree_job(fs, id, NULL) == -1, EINVAL, "NULL");
    REFUSED(chiton_start_usage(fs, "/absent") == 0, ENOENT, "/absent");
    REFUSED(chiton_start_usage(NULL, "/") == 0, EINVAL, "handle is NULL");
    REFUSED(chiton_start_copy_tree(fs, "/dir", NULL) == 0, EINVAL, "new path is NULL");
    REFUSED(chiton_cancel_tree_job(NULL, id) == -1, EINVAL, "handle is NULL");
}

int main(int argc, char **argv) {
    fs = chiton_connect(argc > 1 ? argv[1] : NULL, NULL);
    CHECK(fs != NULL);
    if (fs == NULL) return 1;
    CHECK(chiton_mkdir(fs, "/dir/sub") == 0 && chiton_mkdir(fs, "/other") == 0);
    dir = ino("/dir");
    other = ino("/other");
    opens();
    questions();
    changes();
    sizes();
    many();
    searches();
    jobs();
    CHECK(chiton_close(fs) == 0);
    if (failures == 0) printf("batches hold\n");
    return failures != 0;
}
