/*
 * Images of learned durations, as a file that somebody else may have written: refused, or taken
 * over such that every answer is a duration, more can be learned, and what is saved is taken over
 * again.
 */
#include "base/hash.h"
#include "sched/predict.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void use(struct weir_predict *predict)
{
    for (int class = 0; class < WEIR_SCHED_CLASS_COUNT; class ++) {
        for (uint64_t key = 0; key < 4; key++) {
            for (uint64_t size = 0; size >> 58 == 0; size = size * 16 + 1) {
                must(weir_predict_ask(predict, (enum weir_sched_class) class, key, size) <=
                     1000000000000000000u);
            }
            weir_predict_learn(predict, (enum weir_sched_class) class, key, 1000, 70000);
            (void)weir_predict_is_sure(predict, (enum weir_sched_class) class, key);
        }
    }
}

static void try_image(const uint8_t *data, size_t size)
{
    struct weir_predict *predict;
    struct weir_predict *again;
    void *image;
    size_t bytes;

    must(weir_predict_create(16, &predict) == WEIR_OK);
    must(weir_predict_create(16, &again) == WEIR_OK);
    if (weir_predict_load(predict, data, size) == WEIR_OK) {
        image = malloc(weir_predict_save_bytes(predict));
        must(image != NULL);
        must(weir_predict_save(predict, image, weir_predict_save_bytes(predict), &bytes) ==
             WEIR_OK);
        must(weir_predict_load(again, image, bytes) == WEIR_OK);
        free(image);
        use(predict);
    }
    weir_predict_destroy(predict);
    weir_predict_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    uint64_t sum;

    must(copy != NULL);
    try_image(data, size);
    if (size >= 24) { /* and as one who knows about the checksum would have it */
        memcpy(copy, data, size);
        sum = weir_hash64_of(copy, size - 8);
        for (int i = 0; i < 8; i++) {
            copy[size - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
        }
        try_image(copy, size);
    }
    free(copy);
    return 0;
}
