/*
 * Answers that the guest library and softgpu both give. Their generated entry points have checked
 * the arguments.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stddef.h>
#include <stdint.h>

/** Copy a text into the program's buffer of `room` bytes (at least 1), cut off if it is longer.
 * CUDA_SUCCESS. @thread any */
CUresult weir_answer_text(const char *text, char *buffer, int room);

/** Report that no atomic operation is offered: writes count zeros. CUDA_SUCCESS. @thread any */
CUresult weir_answer_no_atomics(unsigned int *capabilities, unsigned int count);

/** As cuGetErrorName and cuGetErrorString: NULL and CUDA_ERROR_INVALID_VALUE for no error. @thread
 * any */
CUresult weir_answer_error_name(CUresult error, const char **ret_text);
CUresult weir_answer_error_string(CUresult error, const char **ret_text);

/**
 * cuDeviceGetProperties: CUDA_SUCCESS.
 *
 * @param attribute  cuDeviceGetAttribute; an attribute without a value is 0.
 * @thread any
 */
CUresult weir_answer_properties(CUresult (*attribute)(int *value, CUdevice_attribute id,
                                                      CUdevice dev),
                                CUdevice dev, CUdevprop *ret_properties);

/*
 * In what follows, the first parameters are entry points of the side that answers. The others are
 * the program's arguments, which nobody has checked. Called by any thread.
 */

/** cuMemcpyBatchAsync. @param ret_failed  SIZE_MAX is written, as it is not known which member
 * failed; may be NULL. */
CUresult weir_answer_copies(CUresult (*copy)(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                             CUstream stream),
                            const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
                            size_t count, const CUmemcpyAttributes *attributes,
                            const size_t *firsts, size_t n_attributes, size_t *ret_failed,
                            CUstream stream);

/** cuMemcpy3DBatchAsync. @param ret_failed  as above. */
CUresult weir_answer_boxes(CUresult (*copy)(const CUDA_MEMCPY3D *box, CUstream stream),
                           CUresult (*describe)(CUDA_ARRAY3D_DESCRIPTOR *ret_shape, CUarray array),
                           const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count, size_t *ret_failed,
                           unsigned long long flags, CUstream stream);

/** cuMemPrefetchBatchAsync. */
CUresult weir_answer_prefetches(CUresult (*prefetch)(CUdeviceptr at, size_t bytes,
                                                     CUmemLocation location, unsigned int flags,
                                                     CUstream stream),
                                const CUdeviceptr *at, const size_t *sizes, size_t count,
                                const CUmemLocation *locations, const size_t *firsts,
                                size_t n_locations, unsigned long long flags, CUstream stream);

/** cuMemRangeGetAttributes. */
CUresult weir_answer_range_attributes(CUresult (*attribute)(void *data, size_t bytes,
                                                            CUmem_range_attribute id,
                                                            CUdeviceptr at, size_t count),
                                      void **data, const size_t *sizes,
                                      const CUmem_range_attribute *ids, size_t n, CUdeviceptr at,
                                      size_t count);

/** cuMemGetMemPool and cuMemGetDefaultMemPool: pools of a device only. @param pool_of
 * cuDeviceGetMemPool, cuDeviceGetDefaultMemPool */
CUresult weir_answer_pool_at(CUresult (*pool_of)(CUmemoryPool *ret_pool, CUdevice device),
                             CUmemoryPool *ret_pool, const CUmemLocation *location,
                             CUmemAllocationType type);

/** cuMemSetMemPool: pools of a device only. */
CUresult weir_answer_pool_set_at(CUresult (*set)(CUdevice device, CUmemoryPool pool),
                                 const CUmemLocation *location, CUmemAllocationType type,
                                 CUmemoryPool pool);

/** cuMemAllocPitch. */
CUresult weir_answer_pitch(CUresult (*alloc)(CUdeviceptr *ret_at, size_t bytes),
                           CUdeviceptr *ret_at, size_t *ret_pitch, size_t row_bytes, size_t rows,
                           unsigned int element_bytes);

/** cuDeviceGetByPCIBusId. */
CUresult weir_answer_by_pci_bus_id(CUresult (*count)(int *ret_count),
                                   CUresult (*attribute)(int *value, CUdevice_attribute id,
                                                         CUdevice dev),
                                   CUdevice *ret_device, const char *text);

/** cuCtxCreate_v3 and _v4, without what no device here has. */
CUresult weir_answer_ctx_create_v3(CUresult (*create)(CUcontext *ret_ctx, unsigned int flags,
                                                      CUdevice dev),
                                   CUcontext *ret_ctx, const CUexecAffinityParam *params, int n,
                                   unsigned int flags, CUdevice dev);
CUresult weir_answer_ctx_create_v4(CUresult (*create)(CUcontext *ret_ctx, unsigned int flags,
                                                      CUdevice dev),
                                   CUcontext *ret_ctx, const CUctxCreateParams *params,
                                   unsigned int flags, CUdevice dev);

/** cuGraphInstantiate_v2: there is no failed node to name, and nothing to log. @param instantiate
 * cuGraphInstantiateWithFlags */
CUresult weir_answer_instantiate(CUresult (*instantiate)(CUgraphExec *ret_exec, CUgraph graph,
                                                         unsigned long long flags),
                                 CUgraphExec *ret_exec, CUgraph graph, CUgraphNode *ret_failed,
                                 char *log, size_t log_bytes);

/** cuGraphExecUpdate. @param update  cuGraphExecUpdate_v2 */
CUresult weir_answer_exec_update(CUresult (*update)(CUgraphExec exec, CUgraph graph,
                                                    CUgraphExecUpdateResultInfo *ret_info),
                                 CUgraphExec exec, CUgraph graph, CUgraphNode *ret_failed,
                                 CUgraphExecUpdateResult *ret_result);

/** cuGraphDebugDotPrint: the names of nodes' types, and the edges. errno is preserved. */
CUresult weir_answer_dot(CUresult (*get_nodes)(CUgraph graph, CUgraphNode *nodes, size_t *n),
                         CUresult (*get_edges)(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                               size_t *n),
                         CUresult (*get_type)(CUgraphNode node, CUgraphNodeType *ret_type),
                         CUgraph graph, const char *path);
