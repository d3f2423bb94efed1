/* The windows of a worker's tenants: which are taken, and what is prepared in them. */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_tenant;
struct weir_worker;

/** Take a window and reserve it for the first tenant that comes. @thread main, before there are
 * sessions */
CUresult weir_worker_window_prepare(struct weir_worker *worker);
/** @return the first address of the ready window. @thread main, before there are sessions */
uint64_t weir_worker_ready_window_base(const struct weir_worker *worker);
/** Give that window back, with the chunk in it (weir_chunk_ready_make()), if no tenant has come.
 * @thread main, with no session left */
void weir_worker_window_finish(struct weir_worker *worker);
/** Take a window and reserve its halves, once. @thread a session's, without the worker's lock */
CUresult weir_tenant_reserve(struct weir_tenant *tenant);
/** Give the window back, if it was reserved. No session may be left. @thread main */
void weir_tenant_unreserve(struct weir_tenant *tenant);
/** @return the first address of a tenant's reserved window. @thread any */
uint64_t weir_tenant_window_base(const struct weir_tenant *tenant);
/** @return the size of both halves of the window. @thread any */
uint64_t weir_tenant_window_bytes(const struct weir_tenant *tenant);
/**
 * Does a range overlap the window of an existing tenant, or the addresses for reservations
 * (memory/vmm_area.h)?
 * @thread any, without the worker's lock
 */
bool weir_tenant_windows_overlap(struct weir_worker *worker, uint64_t address, uint64_t bytes);
