/*
 * The addresses of a worker that its tenants may reserve with cuMemAddressReserve. Only vmm.c and
 * vmm_host.c use this.
 */
#pragma once

#include "base/thread.h"
#include "host_backend/worker/state/window.h"
#include <stdatomic.h>

struct weir_vmm_area {
    pthread_mutex_t lock;         /* guards what follows, and the tenants' vmm_bytes */
    struct weir_window window;    /* set up at the first reservation */
    atomic_bool maps_host_memory; /* the driver has reached memory of the host there */
};
