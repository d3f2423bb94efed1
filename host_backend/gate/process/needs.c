/*
 * How much shared memory of an SM a kernel's neighbours need.
 *
 * An SM divides its memory between cache and shared memory while it is empty, so a kernel that will
 * have neighbours sets aside shared memory for them, too (worker/twins/carve_out.h). The grant
 * tells the worker how much, since the neighbour is in another worker.
 *
 * The gate process does not know yet which kernel the neighbour will be. Where n blocks of a kernel
 * fit on an SM, a policy counts each as 1/n of the SM. It gives two kernels one SM between them,
 * but each at least one block. So the gate process assumes that blocks of a single kernel fill the
 * rest of the SM, and that there is at least one. It takes the kernel that needs most memory for
 * that, among those that came to other queues lately.
 */
#include "host_backend/gate/process/served.h"

#define LATE_NS         WEIR_NS_PER_S /* kernels that came longer ago are not considered */
#define BLOCK_BYTES_MAX (1u << 20)    /* more than an SM has; a worker may claim any number */
#define BLOCKS_MAX      1024u         /* likewise */

static uint32_t at_most(uint64_t value, uint32_t most)
{
    return value < most ? (uint32_t)value : most;
}

void served_need_note(struct served_need *need, const struct weir_gate_request *arrival,
                      uint64_t now_ns)
{
    struct served_need own = {.block_bytes = at_most(arrival->size, BLOCK_BYTES_MAX),
                              .blocks_per_sm = at_most(arrival->blocks_per_sm, BLOCKS_MAX),
                              .at_ns = now_ns};

    if (own.block_bytes * own.blocks_per_sm >= need->block_bytes * need->blocks_per_sm ||
        need->at_ns + LATE_NS < now_ns) {
        *need = own;
    }
}

/* @param left, of  left / of: the part of an SM that neighbours may fill */
static uint32_t bytes_of(const struct served_need *need, uint32_t left, uint32_t of)
{
    uint32_t blocks = (uint32_t)((uint64_t)need->blocks_per_sm * left / of);

    return (blocks != 0 ? blocks : 1) * need->block_bytes;
}

uint32_t served_beside_bytes(const struct served_item *item, uint32_t block_limit, uint64_t now_ns)
{
    const struct weir_gate_process *process = item->queue->gpu->process;
    uint32_t all = at_most(item->blocks_per_sm, BLOCKS_MAX), most = 0;

    for (uint32_t i = 0; i < process->n_ports && block_limit < all; i++) {
        const struct served_port *port = process->ports[i];

        for (const struct served_queue *q = port->queues; q; q = q->next) {
            if (q != item->queue && q->gpu == item->queue->gpu &&
                port->domain == item->queue->port->domain && now_ns <= q->need.at_ns + LATE_NS) {
                uint32_t bytes = bytes_of(&q->need, all - block_limit, all);

                most = WEIR_MAX(bytes, most);
            }
        }
    }
    return most;
}
