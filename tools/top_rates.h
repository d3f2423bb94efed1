/* weir top: what changed between two reports of a host, in order. */
#pragma once

#include "host_backend/config/control.h"

enum weir_top_sort {
    WEIR_TOP_BY_SHARE,
    WEIR_TOP_BY_MEMORY,
    WEIR_TOP_BY_WAIT,
    WEIR_TOP_BY_COPIES,
    WEIR_TOP_BY_NAME,
    WEIR_TOP_SORT_COUNT
};

/** The name of an order, such as "share". */
extern const char *const weir_top_sort_names[WEIR_TOP_SORT_COUNT];

/* Rows with arrays that weir_top_rates_finish() frees. */
struct weir_top_rates {
    struct weir_status_rate *devices, *tenants, *processes;
    const struct weir_status_device **device_of; /* the device of each row; borrowed */
    const struct weir_status_tenant **tenant_of; /* the tenant of each row; borrowed */
    size_t n_devices, n_tenants, n_processes;
    double seconds;
};

/** @return false: no memory */
bool weir_top_rates_make(const struct weir_status_report *before,
                         const struct weir_status_report *now, enum weir_top_sort sort,
                         struct weir_top_rates *ret_rates);
/** Free the arrays. Accepts zeroed rates. */
void weir_top_rates_finish(struct weir_top_rates *rates);
