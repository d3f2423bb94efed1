/*
 * The mode "explore", for tests only, stops, resumes and moves runs at random, as a scheduler
 * might. It shows that no moment, place or task size changes a kernel's result. A seed makes it
 * repeatable.
 */
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/twins/private.h"

#include "base/clock.h"
#include <sys/prctl.h>
#include <time.h>

#define PAUSE_MAX_NS (300 * WEIR_NS_PER_US)
#define IDLE_NS      (2 * WEIR_NS_PER_MS)
#define LEASE_MAX_NS (3 * WEIR_NS_PER_MS)
#define TASK_MAX     8u

/* Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (2014),
 * the mixing function. */
uint64_t weir_forms_draw(struct weir_forms *forms)
{
    uint64_t z = (atomic_fetch_add(&forms->draws, 1) + 1 + ((uint64_t)forms->config.seed << 32)) *
                 UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

bool weir_forms_explores(struct weir_session *session, uint64_t *ret_draw)
{
    struct weir_forms *forms = weir_worker_forms(session->worker);

    if (!forms ||
        weir_forms_mode_of(forms->config.mode, weir_tenant_setting(session->tenant, forms)) !=
            WEIR_FORMS_EXPLORE) {
        return false;
    }
    *ret_draw = weir_forms_draw(forms);
    return true;
}

struct weir_run_place weir_forms_draw_place(struct weir_forms_device *device,
                                            uint32_t most_block_limit)
{
    uint64_t draw = weir_forms_draw(device->forms);
    struct weir_run_place place = {.task_blocks = 1 + (uint32_t)(draw >> 8) % TASK_MAX};

    if ((draw & 1) != 0 &&
        device->gpu->share_pct == 0) { /* with a share, the SMs of the context are not known */
        place.sm_first = (uint32_t)(draw >> 16) % device->sms;
        place.sm_count = 1 + (uint32_t)(draw >> 32) % (device->sms - place.sm_first);
    }
    if ((draw & 6) == 6) {
        place.block_limit = 1 + (uint32_t)(draw >> 48) % most_block_limit;
    }
    return place;
}

/* Stop some runs before the explorer's thread could, also before they have begun. */
void weir_forms_explore_begun(struct weir_forms_device *device, struct weir_run *run)
{
    uint64_t draw = weir_forms_draw(device->forms);

    if (draw % 3 == 0) {
        (void)weir_run_stop(run, (draw >> 8) % LEASE_MAX_NS);
    }
}

static void act(struct weir_forms_device *device, struct weir_run *run)
{
    uint64_t draw = weir_forms_draw(device->forms);
    struct weir_run_place place;

    switch (draw % 4) {
    case 0:
    case 1:
        (void)weir_run_stop(run, (draw >> 8) % LEASE_MAX_NS);
        break;
    case 2:
        (void)weir_run_resume(run);
        break;
    default:
        place = weir_forms_draw_place(device, 4);
        (void)weir_run_resize(run, &place);
        break;
    }
}

void *weir_forms_explore(void *user)
{
    struct weir_forms_device *device = user;
    struct weir_runs *runs = atomic_load(&device->runs);
    bool quit = false;

    (void)prctl(PR_SET_NAME, "weir-explore");
    (void)device->forms->driver->cuCtxSetCurrent(device->gpu->context);
    while (!quit) {
        uint64_t draw = weir_forms_draw(device->forms);
        struct weir_run *run = weir_runs_pick(runs, (uint32_t)draw);
        struct timespec pause = {0, (long)(!run ? IDLE_NS : (draw >> 32) % PAUSE_MAX_NS)};

        if (run) {
            act(device, run);
            weir_run_put(run);
        }
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&device->lock);
        quit = device->quit;
        pthread_mutex_unlock(&device->lock);
    }
    return NULL;
}
