/* Errors that no context survives: the worker notes the first, tells its sessions, and exits. */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_STICKY_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_STICKY_H

#include "proto/cuda_abi.h"
#include <stdbool.h>

struct weir_worker;

/** Is this an error that ends a context? @thread any */
bool weir_error_is_sticky(CUresult error);
/** The error that was noted; CUDA_SUCCESS: the contexts live. @thread any */
CUresult weir_worker_sticky_error(const struct weir_worker *worker);

#endif
