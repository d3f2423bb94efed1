/* What graph.c, graph_nodes.c and graph_exec.c share. */
#pragma once

#include "softgpu/driver/forward.h"

CUresult weir_soft_graph_find(CUgraph handle, struct weir_soft_graph **ret_graph);

/* Check node parameters and make an operation. If they name no context, the current one counts. */
CUresult weir_soft_node_kernel(const CUDA_KERNEL_NODE_PARAMS *params,
                               const struct weir_soft_op *old, struct weir_soft_op **ret_op);
CUresult weir_soft_node_copy(const CUDA_MEMCPY3D *params, CUcontext ctx,
                             struct weir_soft_op **ret_op);
CUresult weir_soft_node_set(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx,
                            struct weir_soft_op **ret_op);
CUresult weir_soft_node_host(const CUDA_HOST_NODE_PARAMS *params, struct weir_soft_op **ret_op);
CUresult weir_soft_node_event(enum weir_soft_op_kind kind, CUevent event,
                              struct weir_soft_op **ret_op);
CUresult weir_soft_node_memops(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params,
                               struct weir_soft_op **ret_op);
/** The operation of a CUgraphNodeParams; NULL for child graphs and empty nodes. */
CUresult weir_soft_node_any(CUgraphNodeParams *params, const struct weir_soft_op *old,
                            struct weir_soft_op **ret_op);

/** Where a node of this type has its operation: in its graph or, with exec, in an instantiated
 * one. */
CUresult weir_soft_node_op(uint64_t exec, CUgraphNode node, CUgraphNodeType type,
                           struct weir_soft_op ***ret_op);
/** Put an operation where another one was. @param op  taken; NULL: the other one stays. */
void weir_soft_op_replace(struct weir_soft_op **at, struct weir_soft_op *op);

/** Add those of a graph and its child graphs, with as many references more. What others have of
 * *users stays as it is.
 * @param users  a reference of the caller's; NULL where there is no user object. */
CUresult weir_soft_users_add(struct weir_soft_users **users, const struct weir_soft_graph *graph);
/** Is a capture adding to the graph? */
bool weir_soft_capture_uses(const struct weir_soft_graph *graph);
