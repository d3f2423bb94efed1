/*
 * Graphs with marks: nodes that record an event each. A launch's records need those events until
 * they are taken, but the next launch would record them anew. So where launches follow each other
 * faster than records are taken, the marks get other events before the launch. A program that waits
 * for each launch uses one set of events, and changes nothing.
 */
#include "host_backend/worker/device/profile.h"
#include "proto/driver_table.h"
#include <stdlib.h>

struct weir_profile_graph *weir_profile_graph_create(uint32_t max_nodes, uint32_t max_marks)
{
    struct weir_profile_graph *graph = calloc(1, sizeof *graph);

    if (graph) {
        graph->nodes = calloc(max_nodes, sizeof *graph->nodes);
        graph->marks = calloc(max_marks, sizeof *graph->marks);
        graph->events = calloc(1, sizeof *graph->events + max_marks * sizeof(CUevent));
    }
    if (graph && (!graph->nodes || !graph->marks || !graph->events)) {
        weir_profile_graph_destroy(NULL, graph);
        return NULL;
    }
    return graph;
}

static void destroy_events(const struct weir_driver *driver, uint32_t n,
                           struct weir_profile_events *events)
{
    for (uint32_t i = 0; i < n && events->event[i]; i++) {
        (void)driver->cuEventDestroy_v2(events->event[i]);
    }
    free(events);
}

static void free_unused(const struct weir_driver *driver, struct weir_profile_graph *graph)
{
    if (graph->native || graph->open != 0) {
        return;
    }
    while (graph->events) {
        struct weir_profile_events *next = graph->events->next;

        destroy_events(driver, graph->n_marks, graph->events);
        graph->events = next;
    }
    free(graph->nodes);
    free(graph->marks);
    free(graph);
}

void weir_profile_graph_destroy(const struct weir_driver *driver, struct weir_profile_graph *graph)
{
    if (!graph) {
        return;
    }
    if (graph->native) {
        (void)driver->cuGraphExecDestroy(graph->native);
    }
    if (graph->graph) {
        (void)driver->cuGraphDestroy(graph->graph);
    }
    graph->native = NULL;
    free_unused(driver, graph);
}

void weir_profile_graph_taken(const struct weir_driver *driver, struct weir_profile_graph *graph,
                              struct weir_profile_events *events)
{
    events->in_use = false;
    graph->open--;
    free_unused(driver, graph);
}

static struct weir_profile_events *make_events(const struct weir_driver *driver, uint32_t n)
{
    struct weir_profile_events *events = calloc(1, sizeof *events + n * sizeof(CUevent));

    for (uint32_t i = 0; i < n && events; i++) {
        if (driver->cuEventCreate(&events->event[i], CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
            destroy_events(driver, i, events);
            return NULL;
        }
    }
    return events;
}

CUresult weir_profile_graph_ready(const struct weir_driver *driver,
                                  struct weir_profile_graph *graph)
{
    struct weir_profile_events **at = &graph->events, *events;
    CUresult result = CUDA_SUCCESS;

    if (!graph->events->in_use) {
        return CUDA_SUCCESS;
    }
    while (*at && (*at)->in_use) {
        at = &(*at)->next;
    }
    events = *at ? *at : make_events(driver, graph->n_marks);
    if (!events) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *at = events->next; /* NULL, where it is new */
    events->next = graph->events;
    graph->events = events;
    for (uint32_t i = 0; i < graph->n_marks && result == CUDA_SUCCESS; i++) {
        result = driver->cuGraphExecEventRecordNodeSetEvent(graph->native, graph->marks[i].node,
                                                            events->event[i]);
    }
    return result;
}
