/* WEIR_STATS: prints the process's own table when it ends. */
#include "base/search.h"
#include "guest_lib/calls.h"
#include "proto/calls_log_table.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct row {
    const char *name;
    struct weir_stats_counts counts;
};

/* Sort functions by the time that they waited, then by their number of calls. */
static int by_wait(const void *left, const void *right)
{
    const struct weir_stats_counts *a = &((const struct row *)left)->counts;
    const struct weir_stats_counts *b = &((const struct row *)right)->counts;
    if (a->wait_ns != b->wait_ns) {
        return a->wait_ns < b->wait_ns ? 1 : -1;
    }
    uint64_t a_calls = a->guest + a->posted;
    uint64_t b_calls = b->guest + b->posted;
    return a_calls < b_calls ? 1 : a_calls > b_calls ? -1 : 0;
}

static void print_row(int fd, const struct row *row)
{
    const struct weir_stats_counts *c = &row->counts;
    dprintf(fd, "%-44s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %12.3f %10.1f %10.1f %12.3f\n",
            row->name, c->guest, c->posted, c->waited, (double)c->wait_ns / 1e6,
            c->waited ? (double)c->wait_ns / 1e3 / (double)c->waited : 0.0, (double)c->max_ns / 1e3,
            (double)c->busy_ns / 1e6);
}

static void print_table(int fd)
{
    static struct row rows[WEIR_SYMBOL_COUNT];
    struct row total = {.name = "total"};
    size_t n = 0;
    for (int i = 0; i < WEIR_SYMBOL_COUNT; i++) {
        struct weir_stats_counts *c = &rows[n].counts;
        weir_calls_sum((enum weir_symbol)i, c);
        if (c->guest + c->posted + c->waited == 0) {
            continue;
        }
        rows[n++].name = weir_calls_log_symbols[i].name;
        total.counts.guest += c->guest;
        total.counts.posted += c->posted;
        total.counts.waited += c->waited;
        total.counts.wait_ns += c->wait_ns;
        total.counts.busy_ns += c->busy_ns;
        total.counts.max_ns = WEIR_MAX(c->max_ns, total.counts.max_ns);
    }
    if (n == 0) {
        return;
    }
    qsort(rows, n, sizeof rows[0], by_wait);
    dprintf(fd, "weir: calls of process %d\n%-44s %10s %10s %10s %12s %10s %10s %12s\n",
            (int)getpid(), "FUNCTION", "GUEST", "POSTED", "WAITED", "WAIT ms", "MEAN us", "MAX us",
            "OTHER ms");
    for (size_t i = 0; i < n; i++) {
        print_row(fd, &rows[i]);
    }
    print_row(fd, &total);
}

void weir_calls_report(void)
{
    const char *where = getenv("WEIR_STATS");
    if (!where || !*where || strcmp(where, "0") == 0) {
        return;
    }
    if (strcmp(where, "1") == 0) {
        print_table(STDERR_FILENO);
        return;
    }
    int fd = open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0) {
        print_table(fd);
        close(fd);
    }
}
