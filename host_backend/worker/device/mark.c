/* Words and events of marks: see mark.h. */
#include "host_backend/worker/device/mark.h"

#include "base/grow.h"
#include "base/thread.h"
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u
#define LINE_BYTES                                                                                 \
    64u /* one word in a cache line: the GPU's writes do not disturb readers of other words */
#define PAGE_WORDS (PAGE_BYTES / LINE_BYTES)

struct page {
    struct page *next;
    uint8_t *host;
    CUdeviceptr dptr;
    uint64_t used;                 /* bit mask of the words in use */
    uint64_t leaving;              /* used words whose stream is gone, but not all of its marks */
    uint32_t expected[PAGE_WORDS]; /* value of the last mark of such a word */
};
_Static_assert(PAGE_WORDS == 64, "a bit per word");

struct weir_marks {
    const struct weir_driver *driver;
    bool words;
    pthread_mutex_t lock; /* guards what follows */
    struct page *pages;
    CUevent *events; /* events that are free */
    uint32_t n_events, room;
};

enum weir_status weir_marks_create(const struct weir_driver *driver, bool words,
                                   struct weir_marks **ret_marks)
{
    struct weir_marks *marks = calloc(1, sizeof *marks);

    WEIR_FAIL_IF(!marks, WEIR_ERR_NO_MEMORY);
    marks->driver = driver;
    marks->words = words;
    pthread_mutex_init(&marks->lock, NULL);
    *ret_marks = marks;
    return WEIR_OK;
}

void weir_marks_destroy(struct weir_marks *marks)
{
    if (!marks) {
        return;
    }
    for (struct page *page; (page = WEIR_POP(marks->pages));) {
        (void)marks->driver->cuMemFreeHost(page->host);
        free(page);
    }
    for (uint32_t i = 0; i < marks->n_events; i++) {
        (void)marks->driver->cuEventDestroy_v2(marks->events[i]);
    }
    free(marks->events);
    pthread_mutex_destroy(&marks->lock);
    free(marks);
}

/* ---------------------------------------------------------------- words */

static struct page *add_page_locked(struct weir_marks *marks)
{
    unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    struct page *page = calloc(1, sizeof *page);

    WEIR_FAIL_IF(!page, NULL);
    if (marks->driver->cuMemHostAlloc((void **)&page->host, PAGE_BYTES, flags) != CUDA_SUCCESS) {
        free(page);
        return NULL;
    }
    if (marks->driver->cuMemHostGetDevicePointer_v2(&page->dptr, page->host, 0) != CUDA_SUCCESS) {
        (void)marks->driver->cuMemFreeHost(page->host);
        free(page);
        return NULL;
    }
    memset(page->host, 0, PAGE_BYTES);
    WEIR_PUSH(marks->pages, page);
    return page;
}

void weir_marks_prepare(struct weir_marks *marks)
{
    WEIR_LOCKED(&marks->lock);
    if (marks->words && !marks->pages) {
        (void)add_page_locked(marks);
    }
}

/* Free the words to which no mark is pending any more. */
static void reclaim_locked(struct page *page)
{
    for (uint64_t left = page->leaving; left != 0; left &= left - 1) {
        int i = __builtin_ctzll(left);
        const uint32_t *word =
            (const uint32_t *)(const void *)(page->host + (size_t)i * LINE_BYTES);

        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == page->expected[i]) {
            page->leaving &= ~(UINT64_C(1) << i);
            page->used &= ~(UINT64_C(1) << i);
        }
    }
}

static bool take_word(struct weir_marks *marks, struct weir_mark_word *word)
{
    struct page *page;

    WEIR_LOCKED(&marks->lock);
    for (page = marks->pages; page; page = page->next) {
        reclaim_locked(page);
        if (page->used != UINT64_MAX) {
            break;
        }
    }
    if (!page) {
        page = add_page_locked(marks);
    }
    if (page) {
        int i = __builtin_ctzll(~page->used);

        page->used |= UINT64_C(1) << i;
        word->word = (uint32_t *)(void *)(page->host + (size_t)i * LINE_BYTES);
        word->dptr = page->dptr + (CUdeviceptr)i * LINE_BYTES;
        word->next = *word->word; /* start behind the value that the word's last stream left */
        word->page = page;
    }
    return page != NULL;
}

void weir_mark_word_put(struct weir_marks *marks, struct weir_mark_word *word)
{
    struct page *page = word->page;

    if (!page) {
        return;
    }
    size_t i = (size_t)((uint8_t *)word->word - page->host) / LINE_BYTES;
    pthread_mutex_lock(&marks->lock);
    page->leaving |= UINT64_C(1) << i;
    page->expected[i] = word->next;
    pthread_mutex_unlock(&marks->lock);
    *word = (struct weir_mark_word){0};
}

/* ---------------------------------------------------------------- events */

static CUevent take_event(struct weir_marks *marks)
{
    CUevent event = NULL;

    pthread_mutex_lock(&marks->lock);
    if (marks->n_events != 0) {
        event = marks->events[--marks->n_events];
    }
    pthread_mutex_unlock(&marks->lock);
    if (!event && marks->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return NULL;
    }
    return event;
}

void weir_mark_event_put(struct weir_marks *marks, CUevent event)
{
    pthread_mutex_lock(&marks->lock);
    if (WEIR_GROW(marks->events, marks->n_events, marks->room)) {
        marks->events[marks->n_events++] = event;
        event = NULL;
    }
    pthread_mutex_unlock(&marks->lock);
    if (event) {
        (void)marks->driver->cuEventDestroy_v2(event);
    }
}

/* --------------------------------------------------------------- kernels without a reached mark */

void weir_mark_kernel_given(struct weir_mark_word *word, int n)
{
    unsigned given = atomic_load_explicit(&word->given, memory_order_relaxed);

    atomic_store_explicit(&word->given, given + (unsigned)n, memory_order_relaxed);
}

/* Note that the newest mark stands behind all kernels so far. */
static void note_kernels(struct weir_mark_word *word)
{
    unsigned given = atomic_load_explicit(&word->given, memory_order_relaxed);
    unsigned ahead = atomic_load_explicit(&word->ahead, memory_order_relaxed);

    if (ahead != given) {
        if ((int32_t)(word->original - ahead) > 0) {
            word->original_value = word->next;
        }
        atomic_store_explicit(&word->value, word->next, memory_order_relaxed);
        /* K1: publishes word and value; meets the acquire in weir_mark_kernels_pending(). */
        atomic_store_explicit(&word->ahead, given, memory_order_release);
    }
}

void weir_mark_original_given(struct weir_mark_word *word)
{
    word->original = atomic_load_explicit(&word->given, memory_order_relaxed);
}

static bool is_before(const uint32_t *word, uint32_t value)
{
    return (int32_t)(__atomic_load_n(word, __ATOMIC_RELAXED) - value) < 0;
}

bool weir_mark_originals_pending(const struct weir_mark_word *word)
{
    unsigned ahead = atomic_load_explicit(&word->ahead, memory_order_relaxed);

    return word->original != 0 &&
           ((int32_t)(word->original - ahead) > 0 || is_before(word->word, word->original_value));
}

bool weir_mark_kernels_pending(const struct weir_mark_word *word)
{
    unsigned ahead = atomic_load_explicit(&word->ahead, memory_order_acquire); /* K1 */
    unsigned value = atomic_load_explicit(&word->value, memory_order_relaxed);

    if (ahead != atomic_load_explicit(&word->given, memory_order_relaxed)) {
        return true;
    }
    return ahead != 0 && is_before(word->word, value);
}

/* ---------------------------------------------------------------- marks */

CUresult weir_mark_stream(struct weir_marks *marks, struct weir_mark_word *word, CUstream stream,
                          struct weir_gate_mark *ret_mark)
{
    struct weir_gate_mark mark = {0};
    CUresult result;

    if (marks->words) {
        WEIR_FAIL_IF(!word->word && !take_word(marks, word), CUDA_ERROR_OUT_OF_MEMORY);
        mark.word = word->word;
        mark.value = word->next + 1;
        result = marks->driver->cuStreamWriteValue32_v2(stream, word->dptr, mark.value,
                                                        CU_STREAM_WRITE_VALUE_DEFAULT);
        if (result == CUDA_SUCCESS) {
            word->next++;
            note_kernels(word);
        }
    } else {
        mark.event = take_event(marks);
        WEIR_FAIL_IF(!mark.event, CUDA_ERROR_OUT_OF_MEMORY);
        result = marks->driver->cuEventRecord(mark.event, stream);
        if (result != CUDA_SUCCESS) {
            weir_mark_event_put(marks, mark.event);
        }
    }
    if (result == CUDA_SUCCESS) {
        *ret_mark = mark;
    }
    return result;
}

bool weir_mark_event_reached(const struct weir_marks *marks, CUevent event)
{
    return marks->driver->cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}
