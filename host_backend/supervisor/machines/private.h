/* State of the files in machines/. Private to that folder and its tests. */
#pragma once

#include "host_backend/supervisor/machines/ivshmem.h"

struct weir_sup_machines {
    struct weir_sup_vm vms[WEIR_VMS_MAX];
    uint64_t next_vm;
    int nvdimm_watch_fd; /* inotify; -1: not open yet */
    int vsock_fd;        /* -1: no tenant has a CID */
};
