/*
 * A tenant's images (fatbins, cubins, PTX), stored by content so that none is sent or kept twice.
 *
 * An image's name is its XXH3-128 hash, with the bytes in that hash's canonical order. The worker
 * computes the hash itself before it stores an image. Memory is charged to the tenant as host
 * memory before it is allocated. If the tenant may have no more, images without references are
 * dropped, the least recently used first. Internally locked.
 */
#pragma once

#include "base/account.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/thread.h"
#include "host_backend/worker/state/tenant.h"
#include <stdbool.h>
#include <stddef.h>

#define WEIR_IMAGE_TAIL_BYTES 64 /* NUL bytes behind every image: they end PTX and over-reads */

struct weir_image_code;
struct weir_image_compiled;

struct weir_host_image {
    struct weir_host_image *next; /* list, the most recently used image first */
    struct weir_hash hash;
    uint8_t *data; /* owned; bytes + WEIR_IMAGE_TAIL_BYTES */
    uint64_t bytes;
    uint64_t more_bytes; /* what codes and compiled take; under the store's lock */
    uint32_t refs;
    pthread_mutex_t lock;                 /* guards codes and compiled */
    struct weir_image_code *codes;        /* the code that a driver gets (code/image_ready.h) */
    struct weir_image_compiled *compiled; /* the image's compiled PTX (code/program_ptx.h) */
};

/** @param account  the tenant's account, which must outlive the store. */
void weir_host_image_store_init(struct weir_host_image_store *store, struct weir_account *account);
/** All images must have been put back. Accepts a store that was never used. */
void weir_host_image_store_finish(struct weir_host_image_store *store);

/** Find an image, with a reference that weir_image_put() drops; NULL: not stored. @thread any */
struct weir_host_image *weir_image_get(struct weir_host_image_store *store,
                                       const struct weir_hash *hash, uint64_t bytes);
/** Like weir_image_get(), for an image of any length. */
struct weir_host_image *weir_image_get_any(struct weir_host_image_store *store,
                                           const struct weir_hash *hash);
void weir_image_put(struct weir_host_image_store *store, struct weir_host_image *image);

/**
 * Charge memory for an image, or for data kept beside it. Drops unused images if needed.
 * @return WEIR_OK, WEIR_ERR_QUOTA (the tenant may have no more)
 * @thread any
 */
enum weir_status weir_image_reserve(struct weir_host_image_store *store,
                                    uint64_t bytes) WEIR_MUST_CHECK;
/** Give back reserved memory that is not needed. @thread any */
void weir_image_unreserve(struct weir_host_image_store *store, uint64_t bytes);

/**
 * Store an image whose bytes were reserved. The reservation passes to the image, or is given back
 * on failure.
 *
 * @param data  made by malloc, with WEIR_IMAGE_TAIL_BYTES of NUL behind bytes; taken, also on
 *              failure.
 * @param ret_image  a reference.
 * @return WEIR_OK, WEIR_ERR_INVALID (hash differs), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_image_add(struct weir_host_image_store *store, const struct weir_hash *hash,
                                uint8_t *data, uint64_t bytes,
                                struct weir_host_image **ret_image) WEIR_MUST_CHECK;

/** Pass a reservation to an image that keeps more data beside its bytes from now on. @thread any */
void weir_image_grew(struct weir_host_image_store *store, struct weir_host_image *image,
                     uint64_t bytes);

/** Does a session hold an image of the store? @thread any */
bool weir_host_image_store_in_use(struct weir_host_image_store *store);
uint64_t weir_host_image_store_bytes(struct weir_host_image_store *store);

/* An image that a session is sending: its pieces come in order. All of its bytes are reserved. */
struct weir_upload {
    struct weir_upload *next;
    struct weir_hash hash;
    uint8_t *data;
    uint64_t bytes, received;
};
#define WEIR_UPLOADS_MAX 8 /* how many uploads a session may have under way */

/** Free a list of uploads, and give back their reservations. Accepts NULL. */
void weir_uploads_free(struct weir_host_image_store *store, struct weir_upload *first);
