/*
 * Conditions of graphs that a session made (cuGraphConditionalHandleCreate). The driver reuses
 * their names, so a condition is forgotten with its graph.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>

#define WEIR_CONDITIONS_MAX 4096u /* most conditions of a session whose graphs still exist */

struct weir_conditions;
struct weir_object;
struct weir_session;

/**
 * Make a condition of a graph.
 * @param context        the real context.
 * @param default_value, flags  as cuGraphConditionalHandleCreate() takes them.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY (too many, too), or an error of the driver
 * @thread session
 */
CUresult weir_condition_create(struct weir_session *session, const struct weir_object *graph,
                               CUcontext context, unsigned default_value, unsigned flags,
                               CUgraphConditionalHandle *ret_handle);

/** Did this session make the condition, for a graph that still exists? @thread session */
bool weir_condition_good(const struct weir_session *session, CUgraphConditionalHandle handle);

/** A graph is forgotten: forget its conditions. @thread session */
void weir_conditions_graph_gone(struct weir_session *session, const struct weir_object *graph);

/** Accepts NULL. */
void weir_conditions_destroy(struct weir_conditions *conditions);
