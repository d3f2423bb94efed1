/* What an executable graph holds: see exec.h. */
#include "host_backend/worker/session/exec.h"

#include "host_backend/worker/session/graph_holds.h"
#include "host_backend/worker/session/object_types.h"
#include <stdlib.h>

void weir_exec_pieces_destroy(const struct weir_driver *driver, struct weir_exec_pieces *pieces)
{
    if (pieces == NULL) {
        return;
    }
    for (uint32_t i = 0; i < pieces->n; i++) {
        if (pieces->piece[i].native != NULL) {
            (void)driver->cuGraphExecDestroy(pieces->piece[i].native);
        }
    }
    free(pieces);
}

void weir_exec_inside_forget(const struct weir_driver *driver, struct weir_exec_inside *inside)
{
    if (inside->graph != NULL) {
        (void)driver->cuGraphDestroy(inside->graph);
    }
    free(inside->weights);
    free(inside->piece_of);
    *inside = (struct weir_exec_inside){0};
}

void weir_exec_stays_whole(const struct weir_driver *driver, struct weir_exec *exec)
{
    weir_exec_inside_forget(driver, &exec->inside);
    weir_exec_pieces_destroy(driver, exec->pieces);
    exec->pieces = NULL;
}

void weir_exec_gone(const struct weir_driver *driver, struct weir_exec *exec)
{
    weir_exec_stays_whole(driver, exec);
    for (int i = 0; i < 2; i++) {
        if (exec->probe.event[i] != NULL) {
            (void)driver->cuEventDestroy_v2(exec->probe.event[i]);
        }
    }
    if (exec->done != NULL) {
        (void)driver->cuEventDestroy_v2(exec->done);
    }
    weir_graph_hold_exec_gone(driver, exec);
}
