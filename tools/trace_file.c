#include "tools/trace_file.h"

#include "base/fd.h"
#include "sched/sim/generate.h"
#include "tools/command.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPEC_MAX_BYTES (16u << 20)
#define DAY_NS         86400e9

static bool read_path(const char *command, const char *path, uint64_t max_bytes, void **ret_data,
                      uint64_t *ret_bytes)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    bool is_file = fd >= 0 && fstat(fd, &info) == 0;
    if (is_file && (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode))) {
        is_file = false; /* such a device may have no end */
        errno = EINVAL;
    }
    void *data = is_file ? weir_fd_text(fd, max_bytes, ret_bytes) : NULL;
    if (!data) {
        fprintf(stderr, "weir %s: %s: %s\n", command, path, strerror(errno));
    }
    if (fd >= 0 && !is_stdin) {
        close(fd);
    }
    *ret_data = data;
    return data != NULL;
}

bool weir_trace_file_read(const char *command, const char *path, void **ret_data,
                          uint64_t *ret_bytes)
{
    return read_path(command, path, UINT64_MAX, ret_data, ret_bytes);
}

bool weir_option_time(const char *name, const char *text, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < WEIR_COUNT(units); i++) {
        if (end != text && strcmp(end, units[i].name) == 0) {
            value *= units[i].factor;
            if (!(value >= 0 && value <= DAY_NS)) {
                break;
            }
            *ret_ns = (uint64_t)llround(value);
            return true;
        }
    }
    fprintf(stderr, "weir: --%s: '%s' is not a time (20us, 1.5ms, 2s, ...) of at most a day\n",
            name, text);
    return false;
}

bool weir_trace_file_generate(const char *command, const char *spec, const char *seed,
                              const char *duration, const struct weir_sim_gpu_params *gpu, int fd)
{
    struct weir_sim_generate_params params = {.gpu = *gpu, .duration_ns = 10000000000};
    struct weir_diag diag = {0};
    void *text = NULL;
    uint64_t bytes;
    long long number = 1;
    if ((seed && !weir_option_number("seed", seed, 0, INT64_MAX, &number)) ||
        (duration && !weir_option_time("duration", duration, &params.duration_ns)) ||
        (spec[0] == '@' && !read_path(command, spec + 1, SPEC_MAX_BYTES, &text, &bytes))) {
        close(fd);
        return false;
    }
    params.seed = (uint64_t)number;
    enum weir_status status = weir_sim_generate(text ? text : spec, &params, fd, &diag);
    if (status != WEIR_OK) {
        fprintf(stderr, "weir %s: ", command);
        if (diag.line) {
            fprintf(stderr, "%s:%u:%u: ", text ? spec + 1 : "load", diag.line, diag.column);
        }
        fprintf(stderr, "%s\n", diag.message[0] ? diag.message : weir_status_text(status));
    }
    free(text);
    return status == WEIR_OK;
}

bool weir_trace_generate_data(const char *command, const char *spec, const char *seed,
                              const char *duration, const struct weir_sim_gpu_params *gpu,
                              void **ret_data, uint64_t *ret_bytes)
{
    int fd = memfd_create("weir-load", MFD_CLOEXEC);
    int writer = fd >= 0 ? dup(fd) : -1;
    bool is_good = false;
    if (writer < 0) {
        fprintf(stderr, "weir %s: memfd: %s\n", command, strerror(errno));
    } else if (weir_trace_file_generate(command, spec, seed, duration, gpu, writer)) {
        *ret_data = lseek(fd, 0, SEEK_SET) == 0 ? weir_fd_text(fd, UINT64_MAX, ret_bytes) : NULL;
        is_good = *ret_data != NULL;
        if (!is_good) {
            fprintf(stderr, "weir %s: %s\n", command, strerror(errno));
        }
    }
    weir_fd_close(fd);
    return is_good;
}
