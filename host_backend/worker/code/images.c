/* A tenant's images, found by their content. They are in a list: tenants have tens of images, which
 * are looked up only at loads. */
#include "host_backend/worker/code/images.h"

#include "host_backend/worker/code/image_ready.h"
#include "host_backend/worker/code/program_ptx.h"
#include <stdlib.h>
#include <string.h>

#define ANY_BYTES UINT64_MAX

void weir_host_image_store_init(struct weir_host_image_store *store, struct weir_account *account)
{
    *store = (struct weir_host_image_store){.account = account};
    pthread_mutex_init(&store->lock, NULL);
}

static void destroy_image(struct weir_host_image *image)
{
    weir_image_codes_destroy(image->codes);
    weir_image_compiled_destroy(image->compiled);
    pthread_mutex_destroy(&image->lock);
    free(image->data);
    free(image);
}

void weir_host_image_store_finish(struct weir_host_image_store *store)
{
    for (struct weir_host_image *image; (image = WEIR_POP(store->images));) {
        weir_image_unreserve(store, image->bytes + image->more_bytes);
        destroy_image(image);
    }
    pthread_mutex_destroy(&store->lock);
}

/* Find an image and move it to the front: the list's order is the order of use. */
static struct weir_host_image *find_locked(struct weir_host_image_store *store,
                                           const struct weir_hash *hash, uint64_t bytes)
{
    for (struct weir_host_image **at = &store->images; *at; at = &(*at)->next) {
        struct weir_host_image *image = *at;

        if ((bytes == ANY_BYTES || image->bytes == bytes) &&
            memcmp(&image->hash, hash, sizeof *hash) == 0) {
            *at = image->next;
            WEIR_PUSH(store->images, image);
            return image;
        }
    }
    return NULL;
}

struct weir_host_image *weir_image_get(struct weir_host_image_store *store,
                                       const struct weir_hash *hash, uint64_t bytes)
{
    WEIR_LOCKED(&store->lock);
    struct weir_host_image *image = find_locked(store, hash, bytes);
    if (image) {
        image->refs++;
    }
    return image;
}

struct weir_host_image *weir_image_get_any(struct weir_host_image_store *store,
                                           const struct weir_hash *hash)
{
    return weir_image_get(store, hash, ANY_BYTES);
}

void weir_image_put(struct weir_host_image_store *store, struct weir_host_image *image)
{
    if (image) {
        pthread_mutex_lock(&store->lock);
        image->refs--;
        pthread_mutex_unlock(&store->lock);
    }
}

/* Drop the least recently used image. false: all are in use. */
static bool drop_one_locked(struct weir_host_image_store *store)
{
    struct weir_host_image **last = NULL, *victim;

    for (struct weir_host_image **at = &store->images; *at; at = &(*at)->next) {
        last = (*at)->refs == 0 ? at : last;
    }
    WEIR_FAIL_IF(!last, false);
    victim = *last;
    *last = victim->next;
    uint64_t bytes = victim->bytes + victim->more_bytes;
    store->bytes -= bytes;
    weir_image_unreserve(store, bytes);
    destroy_image(victim);
    return true;
}

enum weir_status weir_image_reserve(struct weir_host_image_store *store, uint64_t bytes)
{
    bool good;

    WEIR_FAIL_IF(bytes > weir_account_limit(store->account, WEIR_ACCOUNT_HOST_MEMORY),
                 WEIR_ERR_QUOTA);
    WEIR_LOCKED(&store->lock);
    do {
        good = weir_account_charge(store->account, WEIR_ACCOUNT_HOST_MEMORY, bytes);
    } while (!good && drop_one_locked(store));
    return good ? WEIR_OK : WEIR_ERR_QUOTA;
}

void weir_image_unreserve(struct weir_host_image_store *store, uint64_t bytes)
{
    weir_account_release(store->account, WEIR_ACCOUNT_HOST_MEMORY, bytes);
}

enum weir_status weir_image_add(struct weir_host_image_store *store, const struct weir_hash *hash,
                                uint8_t *data, uint64_t bytes, struct weir_host_image **ret_image)
{
    struct weir_hash real = weir_hash_of(data, bytes);
    struct weir_host_image *image, *made = NULL;

    if (memcmp(&real, hash, sizeof real) != 0) {
        weir_image_unreserve(store, bytes);
        free(data);
        return WEIR_ERR_INVALID;
    }
    pthread_mutex_lock(&store->lock);
    image = find_locked(store, hash, bytes); /* another session may have inserted it meanwhile */
    if (!image && (made = calloc(1, sizeof *made))) {
        *made = (struct weir_host_image){
            .next = store->images, .hash = real, .data = data, .bytes = bytes};
        pthread_mutex_init(&made->lock, NULL);
        store->images = image = made;
        store->bytes += bytes;
    }
    if (image) {
        image->refs++;
        *ret_image = image;
    }
    pthread_mutex_unlock(&store->lock);
    if (!made) {
        weir_image_unreserve(store, bytes);
        free(data);
    }
    return image ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

void weir_image_grew(struct weir_host_image_store *store, struct weir_host_image *image,
                     uint64_t bytes)
{
    WEIR_LOCKED(&store->lock);
    image->more_bytes += bytes;
    store->bytes += bytes;
}

bool weir_host_image_store_in_use(struct weir_host_image_store *store)
{
    WEIR_LOCKED(&store->lock);
    return WEIR_LINKED(image, store->images, image->refs != 0) != NULL;
}

uint64_t weir_host_image_store_bytes(struct weir_host_image_store *store)
{
    WEIR_LOCKED(&store->lock);
    return store->bytes;
}

void weir_uploads_free(struct weir_host_image_store *store, struct weir_upload *first)
{
    for (struct weir_upload *upload; (upload = WEIR_POP(first));) {
        weir_image_unreserve(store, upload->bytes);
        free(upload->data);
        free(upload);
    }
}
