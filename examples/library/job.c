/* Makes 100 files in a directory of its own, alone, and then lets everybody see them.
 *   cc job.c -I ../../crates/ffi/include -L ../../target/release -lchiton -o job
 *   LD_LIBRARY_PATH=../../target/release ./job unix:/srv/chiton/socket [STATE_DIR] */
#include <chiton.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int is_good) {
    if (!is_good) {
        fprintf(stderr, "job: %s\n", chiton_error());
        exit(1);
    }
}

static int count(void *files, const char *name, const struct chiton_attr *attr) {
    (void)name;
    *(int *)files += attr->size > 0;
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: job ADDRESS [STATE_DIR]\n");
        return 2;
    }
    chiton *fs = chiton_connect(argv[1], argc > 2 ? argv[2] : NULL);
    need(fs != NULL && chiton_mkdir(fs, "/results") == 0);
    chiton *job = chiton_decouple(fs, "/results", "batchfs");
    need(job != NULL);
    for (int n = 0; n < 100; n++) {
        char path[32], text[32];
        snprintf(path, sizeof path, "/part-%d", n);
        snprintf(text, sizeof text, "result %d\n", n);
        need(chiton_write(job, path, text, strlen(text)) == 0);
    }
    struct chiton_attr attr;
    int is_seen = chiton_stat(fs, "/results/part-7", &attr) == 0;
    printf("before the merge: %s\n", is_seen ? "seen" : strerror(chiton_errno()));
    int files = 0;
    need(chiton_merge(job) == 0 && chiton_list(fs, "/results", count, &files) == 0);
    printf("after the merge: %d files\n", files);
    need(chiton_close(job) == 0);
    need(chiton_close(fs) == 0);
    return 0;
}
