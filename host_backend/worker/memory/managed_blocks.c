/* The states of a managed range's blocks: see managed_blocks.h. */
#include "host_backend/worker/memory/managed_blocks.h"

#include "base/search.h"
#include <stdlib.h>
#include <string.h>

bool weir_blocks_init(struct weir_blocks *blocks, uint32_t n)
{
    *blocks = (struct weir_blocks){.state = malloc(n), .n = n, .n_cpu = n};
    if (blocks->state) {
        memset(blocks->state, WEIR_BLOCK_ON_CPU | WEIR_BLOCK_ON_GPU, n);
    }
    return blocks->state != NULL;
}

void weir_blocks_finish(struct weir_blocks *blocks)
{
    free(blocks->state);
    *blocks = (struct weir_blocks){0};
}

/* Every change of a state goes through here, so that the counts are right. */
static void set(struct weir_blocks *b, uint32_t block, unsigned int state)
{
    unsigned int was = b->state[block];

    b->n_cpu += (state & WEIR_BLOCK_ON_CPU) != 0;
    b->n_cpu -= (was & WEIR_BLOCK_ON_CPU) != 0;
    b->n_merged += (state & WEIR_BLOCK_MERGED) != 0;
    b->n_merged -= (was & WEIR_BLOCK_MERGED) != 0;
    b->state[block] = (uint8_t)state;
}

enum weir_block_fault weir_blocks_fault(const struct weir_blocks *blocks, uint32_t block,
                                        bool write)
{
    unsigned int state = blocks->state[block];

    if (state & WEIR_BLOCK_MOVING) {
        return WEIR_BLOCK_FAULT_WAITS;
    }
    if (state & WEIR_BLOCK_MAPPED) {
        return write && !(state & WEIR_BLOCK_WRITABLE) ? WEIR_BLOCK_FAULT_OPENS
                                                       : WEIR_BLOCK_FAULT_OVER;
    }
    return state & WEIR_BLOCK_ON_CPU ? WEIR_BLOCK_FAULT_MAPS : WEIR_BLOCK_FAULT_BRINGS;
}

uint32_t weir_blocks_row(struct weir_blocks *blocks, uint32_t block)
{
    uint32_t most = block == blocks->next && blocks->row != 0 ? blocks->row * 2 : 1, n = 1;

    most = WEIR_MIN(most, WEIR_BLOCKS_MOST);
    while (n < most && block + n < blocks->n && blocks->state[block + n] == blocks->state[block]) {
        n++;
    }
    blocks->next = block + n;
    blocks->row = n;
    return n;
}

void weir_blocks_brought(struct weir_blocks *blocks, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        set(blocks, i, blocks->state[i] | WEIR_BLOCK_ON_CPU);
    }
}

void weir_blocks_mapped(struct weir_blocks *blocks, uint32_t first, uint32_t n, bool writable)
{
    for (uint32_t i = first; i < first + n; i++) {
        unsigned int state = blocks->state[i] | WEIR_BLOCK_MAPPED;

        if (writable) {
            state |= WEIR_BLOCK_WRITABLE;
            state &= state & WEIR_BLOCK_MERGED ? ~0u : ~(unsigned int)WEIR_BLOCK_ON_GPU;
        }
        set(blocks, i, state);
    }
}

void weir_blocks_merge(struct weir_blocks *blocks, uint32_t block)
{
    set(blocks, block, blocks->state[block] | WEIR_BLOCK_MERGED | WEIR_BLOCK_ON_GPU);
}

void weir_blocks_merged(struct weir_blocks *blocks, uint32_t block)
{
    unsigned int state = blocks->state[block] & ~(unsigned int)WEIR_BLOCK_MERGED;

    set(blocks, block,
        state & WEIR_BLOCK_WRITABLE ? state & ~(unsigned int)WEIR_BLOCK_ON_GPU : state);
}

bool weir_blocks_take(struct weir_blocks *blocks, uint32_t *at, uint32_t end, uint32_t *ret_first,
                      uint32_t *ret_n)
{
    uint32_t n = 0;

    for (; *at < end; ++*at) {
        unsigned int state = blocks->state[*at];
        bool unmaps = (state & WEIR_BLOCK_MAPPED) && !(state & WEIR_BLOCK_MOVING);

        if (n != 0 && !unmaps) {
            break;
        }
        if (state & WEIR_BLOCK_ON_CPU) {
            set(blocks, *at, state | WEIR_BLOCK_MOVING);
        }
        if (unmaps && n++ == 0) {
            *ret_first = *at;
        }
    }
    *ret_n = n;
    return n != 0;
}

bool weir_blocks_moving(const struct weir_blocks *blocks, uint32_t *at, uint32_t *ret_first,
                        uint32_t *ret_n, uint8_t *ret_state)
{
    while (*at < blocks->n && !(blocks->state[*at] & WEIR_BLOCK_MOVING)) {
        ++*at;
    }
    if (*at == blocks->n) {
        return false;
    }
    *ret_first = *at;
    *ret_state = blocks->state[*at];
    while (*at < blocks->n && blocks->state[*at] == *ret_state) {
        ++*at;
    }
    *ret_n = *at - *ret_first;
    return true;
}

void weir_blocks_moved(struct weir_blocks *blocks, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        set(blocks, i, WEIR_BLOCK_ON_GPU);
    }
}
