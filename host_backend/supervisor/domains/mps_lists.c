/* Lists of devices: which of them share an MPS server, and how many SMs their GPUs have. */
#include "host_backend/supervisor/domains/mps.h"

#include "host_backend/supervisor/state/placement.h"

#include <stdio.h>
#include <string.h>

/* Add the devices of a list that `all` lacks. @return false: it lacks none */
static bool add(char all[WEIR_DEVICE_LIST_BYTES], const char *list)
{
    char item[WEIR_DEVICE_LIST_BYTES];
    bool more = *list == 0; /* "" means all devices of the driver */

    all[0] = more ? 0 : all[0];
    for (size_t n; *list != 0; list += n + (list[n] == ',')) {
        size_t used = strlen(all);

        n = strcspn(list, ",");
        snprintf(item, sizeof item, "%.*s", (int)n, list);
        if (!weir_devices_meet(all, item) && used + 1 + n < WEIR_DEVICE_LIST_BYTES) {
            all[used] = ',';
            memcpy(all + used + 1, item, n + 1);
            more = true;
        }
    }
    return more;
}

bool weir_mps_lists_meet(const struct weir_supervisor *sup, const char *list, const char *other)
{
    char all[WEIR_DEVICE_LIST_BYTES];
    bool grows = true;

    snprintf(all, sizeof all, "%s", list);
    while (grows && !weir_devices_meet(all, other)) {
        grows = false;
        for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
            const struct weir_sup_tenant *t = &sup->tenants[i];
            const char *of = weir_sup_devices_of(sup, t);

            if (t->used && !t->gone && weir_sup_by_program(t) && !weir_sup_is_strict(t) &&
                weir_devices_meet(all, of)) {
                grows = add(all, of) || grows;
            }
        }
    }
    return weir_devices_meet(all, other);
}

/* ---------------------------------------------------------------- SMs */

const struct weir_link_sms *weir_mps_sms(const struct weir_supervisor *sup, const char *devices)
{
    for (uint32_t i = 0; i < sup->mps.n_sms; i++) {
        if (strcmp(sup->mps.sms[i].devices, devices) == 0) {
            return &sup->mps.sms[i].sms;
        }
    }
    return NULL;
}

void weir_mps_sms_note(struct weir_supervisor *sup, const char *devices,
                       const struct weir_link_sms *sms)
{
    if (sms->n != 0 && sms->n <= WEIR_LINK_DEVICES_MAX && !weir_mps_sms(sup, devices) &&
        sup->mps.n_sms < WEIR_MPS_MAX) {
        struct weir_mps_sms *to = &sup->mps.sms[sup->mps.n_sms++];

        snprintf(to->devices, sizeof to->devices, "%s", devices);
        to->sms = *sms;
    }
}

void weir_mps_sms_told(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                       const struct weir_link_sms *sms)
{
    struct weir_sup_mps *m = weir_mps_of(sup, worker);

    if (m && !worker->ready && worker->program.sm_share_pct == 0) {
        weir_mps_sms_note(sup, worker->devices, sms);
        weir_mps_note(sup, m);
    }
}
