/* Rows of `weir stats` about kernels that could be stopped. */
#include "host_backend/worker/twins/private.h"

#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/platform.h"

#include "host_backend/config/status_text.h"
#include <stdio.h>

static const char *const launched_keys[] = {
#define WEIR_FORMS_ROW(name, key) key,
#include "host_backend/worker/twins/counts.def"
#undef WEIR_FORMS_ROW
};

_Static_assert(WEIR_FORMS_LAUNCHED_DRIVER + 1 == WEIR_FORMS_LAUNCHED_COUNT, "room in the session");

/* Only the session's thread writes; other threads read. */
void weir_forms_note(struct weir_session *session, enum weir_forms_launched what)
{
    atomic_uint_fast64_t *n = &session->about->launched[what];

    if (weir_worker_forms(session->worker)) {
        atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    }
}

void weir_forms_write_launched(FILE *out, const uint64_t *launched)
{
    for (size_t i = 0; i < WEIR_FORMS_LAUNCHED_COUNT; i++) {
        struct weir_status_count row = {.n = launched[i]};

        if (row.n != 0) {
            snprintf(row.name, sizeof row.name, "%s", launched_keys[i]);
            weir_status_text_form(out, &row);
        }
    }
}

/* Have no runs of the device ever been stopped? Then its rows are left out. */
static bool has_nothing(const struct weir_runs_counts *c)
{
    return c->started + c->no_run == 0;
}

static void write_run(FILE *out, int device, const char *name, uint64_t n)
{
    struct weir_status_count row = {.n = n};

    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.device, sizeof row.device, "%d", device);
    weir_status_text_run(out, &row);
}

void weir_forms_write_runs(FILE *out, struct weir_forms *forms)
{
    for (uint32_t i = 0; forms && i < forms->n_devices; i++) {
        struct weir_runs *runs = weir_forms_runs_of(forms, i);
        int device = (int)forms->devices[i].gpu->cu;
        struct weir_runs_counts c;

        if (runs) {
            weir_runs_count(runs, &c);
        }
        if (!runs || has_nothing(&c)) {
            continue;
        }
#define WEIR_RUNS_ROW(name) write_run(out, device, #name, c.name);
#include "host_backend/worker/runs/counts.def"
#undef WEIR_RUNS_ROW
    }
}

void weir_forms_stop_missed(struct weir_forms *forms, uint32_t device)
{
    struct weir_runs *runs = weir_forms_runs_of(forms, device);

    if (runs) {
        weir_runs_stop_missed(runs);
    }
}
