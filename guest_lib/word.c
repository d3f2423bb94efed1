/*
 * Completion words, and their owners.
 *
 * The host or the GPU may write a word's last number after its owner is gone. So a word is reused
 * only after that number was written, and its next owner continues from it. Returned words wait in
 * a queue, oldest first.
 */
#include "guest_lib/stream.h"
#include <stdlib.h>
#include <string.h>

struct returned_word {
    uint32_t word;
    uint32_t last_value;
};

/* Guarded by lock. */
static struct {
    struct weir_lock lock;
    uint32_t next_fresh;
    struct returned_word *queue; /* ring of n_words entries */
    uint32_t head;
    uint32_t count;
} words;

CUresult weir_words_init(void)
{
    words.next_fresh = WEIR_WORD_NONE + 1;
    words.head = words.count = 0;
    words.queue = calloc(weir_guest.channel.n_words, sizeof *words.queue);
    return words.queue ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void weir_words_finish(void)
{
    free(words.queue);
    memset(&words, 0, sizeof words);
}

/* Take the oldest returned word if its last number was written. */
static bool take_returned_locked(uint32_t *ret_word, uint32_t *ret_value)
{
    struct returned_word *oldest = &words.queue[words.head];
    WEIR_FAIL_IF(weir_channel_word(&weir_guest.channel, oldest->word) != oldest->last_value, false);
    *ret_word = oldest->word;
    *ret_value = oldest->last_value;
    words.head = (words.head + 1) % weir_guest.channel.n_words;
    words.count--;
    return true;
}

static void rotate_locked(void)
{
    uint32_t n = weir_guest.channel.n_words;
    struct returned_word oldest = words.queue[words.head];
    words.head = (words.head + 1) % n;
    words.queue[(words.head + words.count - 1) % n] = oldest;
}

static CUresult take_locked(uint32_t *ret_word, uint32_t *ret_value)
{
    bool remote = weir_guest.channel.remote; /* if remote, a check costs a round trip */
    if (words.count && !remote && take_returned_locked(ret_word, ret_value)) {
        return CUDA_SUCCESS;
    }
    if (words.next_fresh + WEIR_WORDS_TICKETS < weir_guest.channel.n_words) {
        *ret_word = words.next_fresh++;
        *ret_value = 0;
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < words.count; i++) {
        if (take_returned_locked(ret_word, ret_value)) {
            return CUDA_SUCCESS;
        }
        rotate_locked();
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_word_take(uint32_t *ret_word, uint32_t *ret_value)
{
    WEIR_GUEST_LOCKED(&words.lock);
    return take_locked(ret_word, ret_value);
}

void weir_word_give(uint32_t word, uint32_t last_value)
{
    WEIR_GUEST_LOCKED(&words.lock);
    uint32_t n = weir_guest.channel.n_words;
    words.queue[(words.head + words.count) % n] = (struct returned_word){word, last_value};
    words.count++;
}
