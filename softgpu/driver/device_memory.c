/*
 * Counts how much of a device's memory is used.
 *
 * Each process has devices of its own. With WEIR_SOFTGPU_TOGETHER=FILE all processes that name the
 * file share the devices' memory, as on a GPU. Each has a row in the file, which counts while the
 * process holds a lock on a byte of the file.
 */
#include "softgpu/driver/driver.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ROWS 256 /* processes */

typedef atomic_uint_fast64_t row[WEIR_SOFT_MAX_DEVICES];

static struct {
    int fd;
    row *rows; /* NULL: none are shared */
    int own;
} together = {.fd = -1};

static bool lock(int i, int how)
{
    struct flock byte = {.l_type = F_WRLCK, .l_start = i, .l_len = 1};

    return fcntl(together.fd, how, &byte) == 0 && (how == F_OFD_SETLK || byte.l_type == F_UNLCK);
}

static void open_file(void)
{
    const char *path = getenv("WEIR_SOFTGPU_TOGETHER");
    void *at = MAP_FAILED;

    if (!path || together.fd >= 0) {
        return;
    }
    together.fd = open(path, O_RDWR | O_CLOEXEC);
    if (together.fd >= 0) {
        at = mmap(NULL, ROWS * sizeof(row), PROT_READ | PROT_WRITE, MAP_SHARED, together.fd, 0);
    }
    for (int i = 0; at != MAP_FAILED && i < ROWS; i++) {
        if (lock(i, F_OFD_SETLK)) {
            together.own = i;
            together.rows = at;
            return;
        }
    }
}

void weir_soft_device_use(struct weir_soft_device *device, int64_t bytes)
{
    open_file();
    device->used_bytes += (uint64_t)bytes;
    if (together.rows) {
        atomic_store(&together.rows[together.own][device->ordinal], device->used_bytes);
    }
}

uint64_t weir_soft_device_free_bytes(const struct weir_soft_device *device)
{
    uint64_t used = device->used_bytes;

    open_file();
    for (int i = 0; together.rows && i < ROWS; i++) {
        uint64_t other = atomic_load(&together.rows[i][device->ordinal]);

        used += i != together.own && other != 0 && !lock(i, F_OFD_GETLK) ? other : 0;
    }
    return used < device->total_bytes ? device->total_bytes - used : 0;
}
