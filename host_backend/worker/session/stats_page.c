/*
 * Statistics of guests' calls. They come from memory or records that the guest wrote: so numbers
 * may have any value, and names are cut at the first character that no symbol has.
 */
#include "host_backend/worker/session/stats_page.h"

#include "base/search.h"
#include "base/status.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Copy a name that a guest may be changing right now: up to the first byte that no symbol has. */
static void take_name(char ret_name[WEIR_STATS_NAME_BYTES], const char *from)
{
    size_t n = 0;

    for (; n < WEIR_STATS_NAME_BYTES - 1; n++) {
        char c = ((const volatile char *)from)[n];

        if (!isalnum((unsigned char)c) && c != '_') {
            break;
        }
        ret_name[n] = c;
    }
    memset(ret_name + n, 0, WEIR_STATS_NAME_BYTES - n);
}

static uint64_t take(const uint64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static void add_counts(struct weir_stats_counts *sum, const struct weir_stats_counts *part)
{
    uint64_t max_ns = take(&part->max_ns);

    sum->guest += take(&part->guest);
    sum->posted += take(&part->posted);
    sum->waited += take(&part->waited);
    sum->wait_ns += take(&part->wait_ns);
    sum->busy_ns += take(&part->busy_ns);
    sum->max_ns = WEIR_MAX(sum->max_ns, max_ns);
}

static bool was_called(const struct weir_stats_counts *c)
{
    return (c->guest | c->posted | c->waited) != 0;
}

static struct weir_stats_set *new_set(size_t n)
{
    return calloc(1, sizeof(struct weir_stats_set) + n * sizeof(struct weir_stats_row));
}

struct weir_stats_set *weir_stats_read_page(const struct weir_stats_page *page)
{
    struct weir_stats_set *set;
    uint32_t n;

    /* T1: meets the guest's release once the names are there. */
    if (!page || __atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) != WEIR_STATS_MAGIC) {
        return NULL;
    }
    n = __atomic_load_n(&page->n_functions, __ATOMIC_RELAXED);
    WEIR_FAIL_IF(n > WEIR_STATS_MAX_FUNCTIONS, NULL);
    set = new_set(n);
    for (uint32_t i = 0; set && i < n; i++) {
        struct weir_stats_row row = {0};

        for (int block = 0; block < WEIR_STATS_BLOCKS; block++) {
            add_counts(&row.counts, &page->blocks[block][i]);
        }
        take_name(row.name, page->names[i]);
        if (was_called(&row.counts) && row.name[0] != 0) {
            set->rows[set->n++] = row;
        }
    }
    return set;
}

struct weir_stats_set *weir_stats_read_rows(const void *data, size_t bytes)
{
    size_t n = bytes / sizeof(struct weir_stats_row);
    struct weir_stats_set *set = n <= WEIR_STATS_MAX_FUNCTIONS ? new_set(n) : NULL;

    for (size_t i = 0; set && i < n; i++) {
        struct weir_stats_row from, *to = &set->rows[set->n];

        memcpy(&from, (const char *)data + i * sizeof from, sizeof from);
        take_name(to->name, from.name);
        to->counts = from.counts;
        set->n += was_called(&to->counts) && to->name[0] != 0;
    }
    return set;
}
