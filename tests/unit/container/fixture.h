/* A temporary folder with files that pass for the guest's libraries. */
#pragma once

#include "../../lib/tl_cmocka.h"
#include "container/edits.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char root[64];
    char lib[96]; /* holds libcuda.so.1 -> libcuda.so.0.1, libnvidia-ml.so.1 */
    struct weir_container_edits common;
};

static inline void fixture_file(const char *folder, const char *name)
{
    char path[256];
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_CREAT | O_WRONLY, 0644);
    assert_true(fd >= 0);
    close(fd);
}

static inline void fixture_remove(const char *folder, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)unlink(path);
}

static inline int fixture_make(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char link[128];

    strcpy(f->root, "/tmp/weir-container-XXXXXX");
    if (!mkdtemp(f->root)) {
        return -1;
    }
    snprintf(f->lib, sizeof f->lib, "%s/guest", f->root);
    if (mkdir(f->lib, 0755) != 0) {
        return -1;
    }
    fixture_file(f->lib, "libcuda.so.0.1");
    fixture_file(f->lib, "libnvidia-ml.so.1");
    snprintf(link, sizeof link, "%s/libcuda.so.1", f->lib);
    if (symlink("libcuda.so.0.1", link) != 0) {
        return -1;
    }
    *state = f;
    return weir_container_edits_common(f->lib, NULL, &f->common) == WEIR_OK ? 0 : -1;
}

static inline int fixture_drop(void **state)
{
    struct fixture *f = *state;

    fixture_remove(f->lib, "libcuda.so.1");
    fixture_remove(f->lib, "libcuda.so.0.1");
    fixture_remove(f->lib, "libnvidia-ml.so.1");
    rmdir(f->lib);
    rmdir(f->root);
    free(f);
    return 0;
}
