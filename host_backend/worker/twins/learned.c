/*
 * Keeps measurements of a module's kernels in the cache beside their twins, for the tenant's next
 * program with the same text. So its first launches use the fastest twin and tasks of the right
 * size, and a kernel that did not stop is not launched as a twin again.
 *
 * They are written when the module is unloaded, if they say more than the cache does: another twin
 * was timed, another one is the fastest, or a kernel did not stop.
 */
#include "host_backend/worker/twins/private.h"

#include "base/log.h"
#include "host_backend/worker/twins/fit.h"
#include <stdlib.h>
#include <string.h>

/* A kernel's measurements; rows are in the order of the set's kernels. */
struct row {
    uint64_t block_ns;
    uint64_t grid_ps[WEIR_FORMS_VARIANTS]; /* 0: the variant was not timed enough */
    uint32_t max_regs[WEIR_FORMS_VARIANTS];
    uint32_t never_stop;
    uint32_t reserved; /* 0: leaves no byte of a row unset */
};

static enum weir_forms_variant fastest(const struct row *row)
{
    enum weir_forms_variant best = WEIR_FORMS_PLAIN;

    for (uint32_t v = WEIR_FORMS_PLAIN + 1; v < WEIR_FORMS_VARIANTS; v++) {
        if (row->grid_ps[v] != 0 && row->grid_ps[v] < row->grid_ps[best]) {
            best = (enum weir_forms_variant)v;
        }
    }
    return best;
}

/* A summary of a row: if it differs, the later row is written. 0: nothing was learned. */
static uint32_t gist(const struct row *row)
{
    uint32_t gist = row->never_stop != 0;

    for (uint32_t v = 0; v < WEIR_FORMS_VARIANTS; v++) {
        gist = gist << 1 | (row->grid_ps[v] != 0);
    }
    return gist << 8 | (uint32_t)fastest(row);
}

static struct row row_of(const struct weir_forms_kernel *k)
{
    struct row row = {.block_ns = atomic_load(&k->block_ns),
                      .never_stop = atomic_load(&k->never_stop)};

    for (uint32_t v = 0; v < WEIR_FORMS_VARIANTS; v++) {
        if (k->timing.n[v] >= WEIR_FORMS_TIMINGS) {
            row.grid_ps[v] = k->timing.grid_ps[v];
            row.max_regs[v] = k->others[v].max_regs;
        }
    }
    return row;
}

/* Use a row for a kernel. A wrong row can only cost time. */
static void apply(struct weir_forms_kernel *k, const struct row *row)
{
    enum weir_forms_variant best = fastest(row);

    atomic_store(&k->block_ns, row->block_ns);
    atomic_store(&k->never_stop, row->never_stop != 0);
    for (uint32_t v = 0; v < WEIR_FORMS_VARIANTS; v++) {
        if (row->grid_ps[v] != 0) {
            k->timing.grid_ps[v] = row->grid_ps[v];
            k->timing.n[v] = WEIR_FORMS_TIMINGS;
        }
    }
    k->learned = gist(row);
    if (best != WEIR_FORMS_PLAIN && row->max_regs[best] <= WEIR_FORMS_MOST_REGISTERS) {
        weir_forms_variant_ask(k, best, row->max_regs[best]);
    }
}

bool weir_forms_learned_take(struct weir_forms_module *module)
{
    uint32_t n = module->set->n_kernels;
    uint8_t *bytes;
    size_t n_bytes;

    if (module->mode == WEIR_FORMS_EXPLORE ||
        weir_file_cache_get(&module->device->forms->cache, &module->learned_key, &bytes,
                            &n_bytes) != WEIR_OK) {
        return false;
    }
    bool good = n_bytes == n * sizeof(struct row);
    for (uint32_t i = 0; i < n && good; i++) {
        struct row row;

        memcpy(&row, bytes + i * sizeof row, sizeof row);
        apply(&module->kernels[i], &row);
    }
    free(bytes);
    return good;
}

void weir_forms_learned_keep(const struct weir_forms_module *module)
{
    bool ready = atomic_load(&module->state) == WEIR_FORMS_READY;
    uint32_t n = ready ? module->set->n_kernels : 0;
    bool more = false;

    if (n == 0 || module->mode == WEIR_FORMS_EXPLORE) {
        return;
    }
    struct row *rows = calloc(n, sizeof *rows);
    for (uint32_t i = 0; rows && i < n; i++) {
        rows[i] = row_of(&module->kernels[i]);
        more |= gist(&rows[i]) != module->kernels[i].learned;
    }
    if (more) {
        enum weir_status kept =
            weir_file_cache_put(&module->device->forms->cache, &module->learned_key,
                                (const uint8_t *)rows, n * sizeof *rows);

        if (kept != WEIR_OK && kept != WEIR_ERR_UNSUPPORTED) {
            weir_log_debug("forms: what was learned is not kept tenant=%s why=\"%s\"",
                           module->tenant, weir_status_text(kept));
        }
    }
    free(rows);
}
