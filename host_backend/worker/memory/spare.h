/*
 * Spare memory: device memory that a program has given back and may want again.
 *
 * Some programs free their memory and allocate as much again, as PyTorch does when it empties its
 * cache. Then the driver would unmap, make, map and clear it each time. So chunks that a session
 * returns stay mapped for a second. Only this session can get them again, uncleared, for the same
 * size. Spare memory is not charged and counts as free. It is released when any session lacks
 * memory of the device, and when its session ends.
 *
 * Internally locked. Source: docs/design/memory.md
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct weir_host_chunk;
struct weir_session;
struct weir_spares;
struct weir_worker;

/** Make a worker's list of spares. NULL: out of memory; then none are kept. @thread main */
struct weir_spares *weir_spares_create(void);
/** Free the list, which must be empty. Accepts NULL. @thread main */
void weir_spares_destroy(struct weir_spares *spares);

/**
 * A session returns device memory, which has no reference left: keep it without a charge. If there
 * is too much, the oldest spares are released.
 * @return false: the memory was not kept.
 * @thread the session's
 */
bool weir_spare_keep(struct weir_session *session, struct weir_host_chunk *chunk);

/**
 * Take spare memory of the session.
 * @param bytes  the size of the chunk.
 * @return a chunk without a reference or a charge; NULL: there is none of this size.
 * @thread the session's
 */
struct weir_host_chunk *weir_spare_take(struct weir_session *session, uint32_t device,
                                        uint64_t bytes);

/** How much spare memory a session's process has on a device; a monitor asks for its program.
 * @thread any */
uint64_t weir_spare_bytes(const struct weir_session *session, uint32_t device);

/** Release the spares of a session. @thread the session's */
void weir_spares_end(struct weir_session *session);
/** Release all spares. @return whether there were any. @thread any, with a context current */
bool weir_spares_release(struct weir_worker *worker);
/** Release the spares that are older than a second. @return whether some are left. @thread main,
 * with a context current */
bool weir_spares_age(struct weir_worker *worker, uint64_t now_ns);
