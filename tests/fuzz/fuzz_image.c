/*
 * What the host checks and picks out of any image, as a plain one and as a bundle, before a driver
 * sees it. What was picked must pass the same check again, whole.
 */
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/code/image_closed.h"
#include "host_backend/worker/code/image_ready.h"
#include "host_backend/worker/code/images.h"

#include <stdlib.h>
#include <string.h>

#define SM 90

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void pick(const uint8_t *data, size_t bytes)
{
    uint64_t budget = 1 << 20, left;
    uint8_t *copy = NULL, *again = NULL;
    struct weir_image_facts facts;

    if (weir_fatbin_select(data, bytes, SM, &budget, &copy, &facts) != WEIR_OK) {
        return;
    }
    weir_closed_kernels_destroy(facts.closed);
    left = budget;
    require(left <= 1 << 20);
    if (copy) {
        budget = 1 << 20;
        require(weir_fatbin_bytes(copy) <= bytes);
        require(weir_fatbin_select(copy, weir_fatbin_bytes(copy), SM, &budget, &again, &facts) ==
                WEIR_OK);
        require(!again && budget == left);
        weir_closed_kernels_destroy(facts.closed);
    }
    free(copy);
}

static void store(const uint8_t *data, size_t bytes, bool is_bundle)
{
    struct weir_account account = {0};
    uint8_t *own = calloc(1, bytes + WEIR_IMAGE_TAIL_BYTES);
    struct weir_hash hash = weir_hash_of(data, bytes);
    struct weir_host_image_store images;
    struct weir_host_image *image;
    const void *code = NULL;
    struct weir_image_facts facts;

    require(own != NULL);
    memcpy(own, data, bytes);
    weir_account_limit_set(&account, WEIR_ACCOUNT_HOST_MEMORY, UINT64_MAX);
    weir_host_image_store_init(&images, &account);
    require(weir_image_reserve(&images, bytes) == WEIR_OK);
    require(weir_image_add(&images, &hash, own, bytes, &image) == WEIR_OK);
    if (weir_image_ready(&images, image, is_bundle, SM, &code, &facts) == WEIR_OK) {
        require(code != NULL);
    }
    weir_image_put(&images, image);
    weir_host_image_store_finish(&images);
    require(weir_account_used(&account, WEIR_ACCOUNT_HOST_MEMORY) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = calloc(bytes != 0 ? bytes : 1, 1); /* no room behind: over-reads show */

    require(exact != NULL);
    if (bytes != 0) {
        memcpy(exact, data, bytes);
    }
    pick(exact, bytes);
    free(exact);
    if (bytes != 0) {
        store(data, bytes, false);
        store(data, bytes, true);
    }
    return 0;
}
