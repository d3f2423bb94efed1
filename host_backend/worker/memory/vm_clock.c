#include "host_backend/worker/memory/vm_clock.h"
#include "base/status.h"

#include "base/clock.h"
#include "base/file_text.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS WEIR_NS_PER_S

/*
 * A machine whose processors rest for longer is considered suspended. This is longer than the
 * longest rest of an idle kernel: each processor's watchdog runs every 4 s (2 s were measured:
 * Linux 6.1, two processors, no program). It is also short enough that after a shorter suspension
 * the programs' next heartbeat comes before they count as dead (10 s).
 */
#define REST_NS (5 * WEIR_NS_PER_S)

/* ---------------------------------------------------------------- QEMU's threads */

/* Read a number behind its name in /proc/PID/status. */
static uint64_t number_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/*
 * Read how often a thread got a processor, and its time there in ticks. The first changes if the
 * thread works a little, the second if it never stops. Also gives its name. false: the thread has
 * ended.
 */
static bool signs_of_thread(const char *folder, const char *thread, char name[32],
                            uint64_t *ret_signs)
{
    unsigned long long user = 0, system = 0;
    char path[128], text[4096];

    snprintf(path, sizeof path, "%s/%.20s/stat", folder, thread);
    if (!weir_file_text(path, text, sizeof text) || sscanf(text, "%*d (%31[^)]", name) != 1) {
        return false;
    }
    const char *at = strrchr(text, ')'); /* the process name may contain anything */
    if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                      &system) != 2) {
        return false;
    }
    snprintf(path, sizeof path, "%s/%.20s/status", folder, thread);
    WEIR_FAIL_IF(!weir_file_text(path, text, sizeof text), false);
    *ret_signs = user + system + number_of(text, "\nvoluntary_ctxt_switches:") +
                 number_of(text, "\nnonvoluntary_ctxt_switches:");
    return true;
}

/* With debug-threads=on, which libvirt sets, QEMU names these threads "CPU 0/KVM". */
static bool is_processor(const char *name)
{
    return strncmp(name, "CPU ", strlen("CPU ")) == 0 || strcmp(name, "ALL CPUs/TCG") == 0;
}

uint64_t weir_vm_signs(int64_t pid)
{
    uint64_t of_processors = 0, of_others = 0, of_first = 0, signs = 0;
    unsigned n_processors = 0, n_others = 0;
    char folder[64], first[24], name[32];
    const struct dirent *entry;

    snprintf(folder, sizeof folder, "/proc/%lld/task", (long long)pid);
    snprintf(first, sizeof first, "%lld", (long long)pid);
    DIR *threads = pid > 0 ? opendir(folder) : NULL;
    if (!threads) {
        return WEIR_VM_SIGNS_UNKNOWN;
    }
    while ((entry = readdir(threads))) {
        if (entry->d_name[0] == '.' || !signs_of_thread(folder, entry->d_name, name, &signs)) {
            continue;
        }
        if (is_processor(name)) {
            of_processors += signs;
            n_processors++;
        } else if (strcmp(entry->d_name, first) != 0) {
            of_others += signs;
            n_others++;
        } else {
            of_first = signs;
        }
    }
    closedir(threads);
    /* Without such names, count all threads except the first, which serves the monitor even in a
     * stopped machine. */
    return n_processors != 0 ? of_processors : n_others != 0 ? of_others : of_first;
}

/* ---------------------------------------------------------------- the clock */

void weir_vm_clock_step(struct weir_vm_clock *clock, uint64_t now_ns, uint64_t signs)
{
    bool first = clock->looked_ns == 0;
    uint64_t rest_ns = now_ns - clock->moved_ns;

    clock->looked_ns = now_ns;
    if (!first && signs == clock->signs && signs != WEIR_VM_SIGNS_UNKNOWN) {
        return; /* resting or suspended: that shows when it moves */
    }
    if (!first) {
        clock->run_ns += rest_ns <= REST_NS ? rest_ns : LOOK_NS;
    }
    clock->moved_ns = now_ns;
    clock->signs = signs;
}

uint64_t weir_vm_clock_advance(struct weir_vm_clock *clock)
{
    uint64_t now_ns = weir_clock_now_ns();

    if (clock->looked_ns == 0 || now_ns - clock->looked_ns >= LOOK_NS) {
        weir_vm_clock_step(clock, now_ns, weir_vm_signs(clock->pid));
    }
    return clock->run_ns;
}
