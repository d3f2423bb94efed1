#include "host_backend/worker/vm_clock.h"

#include "base/clock.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_NS WEIR_NS_PER_S

/* Processor time of the virtual machine, in ticks of 10 ms; UINT64_MAX: not known. */
static uint64_t qemu_ticks(int64_t pid)
{
    unsigned long long user = 0, system = 0;
    char path[64], text[1024];
    const char *at;
    ssize_t n;
    int fd;

    if (pid <= 0) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return UINT64_MAX;
    }
    n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    at = strrchr(text, ')'); /* the program's name may be anything */
    if (at == NULL || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                             &user, &system) != 2) {
        return UINT64_MAX;
    }
    return user + system;
}

uint64_t weir_vm_clock_advance(struct weir_vm_clock *clock)
{
    uint64_t now_ns = weir_clock_now_ns();
    uint64_t passed_ns = now_ns - clock->window_ns, ticks;

    if (passed_ns < WINDOW_NS) {
        return clock->run_ns;
    }
    ticks = qemu_ticks(clock->pid);
    if (ticks == UINT64_MAX || ticks != clock->window_ticks) {
        clock->run_ns += passed_ns < 2 * WINDOW_NS ? passed_ns : 2 * WINDOW_NS;
    }
    clock->window_ns = now_ns;
    clock->window_ticks = ticks;
    return clock->run_ns;
}
