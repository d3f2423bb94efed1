#include "tl_host.h"
#include "base/clock.h"
#include "base/memfd.h"
#include "guest_lib/entry.h"
#include "guest_lib/start.h"
#include "proto/guest_calls.h"
#include "proto/transport/transport.h"
#include "proto/wire/control.h"
#include "tests/lib/tl_loop.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define VMM_BASE     0x120000000000ull
#define WINDOW_BYTES (1ull << 30)
#define MAX_HELD     65536

struct held {
    uint32_t word;
    uint32_t value;
};

struct tl_host {
    struct weir_transport *transport;
    const struct weir_segment_view *view;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    bool hold;
    bool refuses_functions;
    struct held held[MAX_HELD];
    unsigned int n_held;
    unsigned int counts[WEIR_OP_COUNT];
    unsigned int chunks;
    bool stop;
    bool gone;
    uint8_t *window;
    uint64_t reserved;
    uint64_t granted;
};

static void write_word(struct tl_host *host, uint32_t word, uint32_t value)
{
    pthread_mutex_lock(&host->lock);
    if (host->hold && host->n_held < MAX_HELD) {
        host->held[host->n_held++] = (struct held){word, value};
    } else {
        __atomic_store_n(&host->view->words[word], value, __ATOMIC_RELEASE);
        weir_futex_wake(&host->view->words[word], 64);
    }
    pthread_mutex_unlock(&host->lock);
}

void tl_host_hold(struct tl_host *host, bool hold)
{
    pthread_mutex_lock(&host->lock);
    host->hold = hold;
    for (unsigned int i = 0; !hold && i < host->n_held; i++) {
        __atomic_store_n(&host->view->words[host->held[i].word], host->held[i].value,
                         __ATOMIC_RELEASE);
        weir_futex_wake(&host->view->words[host->held[i].word], 64);
    }
    host->n_held = hold ? host->n_held : 0;
    pthread_mutex_unlock(&host->lock);
}

static void send_record(struct tl_host *host, enum weir_op op, const struct weir_record *request,
                        const void *message, int32_t status)
{
    uint64_t space[512] = {0};
    struct weir_record *record = (struct weir_record *)space;
    const struct weir_op_info *info = &weir_ops[op];
    size_t bytes = 0;
    if (request && status == 0 && message) {
        bytes = info->out_bytes(message);
        info->out_encode(message, record + 1);
    } else if (!request) {
        bytes = info->in_bytes(message);
        info->in_encode(message, record + 1);
    }
    record->len_bytes = (uint32_t)(sizeof *record + bytes);
    record->op = (uint16_t)op;
    record->flags = request ? WEIR_RECORD_REPLY : WEIR_RECORD_NOTIFY;
    record->seq = request ? request->seq : 0;
    record->status = status;
    enum weir_status sent =
        host->transport->ops->send(host->transport, record, NULL, 0, WEIR_NS_PER_S);
    assert(sent == WEIR_OK || sent == WEIR_ERR_CLOSED);
    (void)sent;
}

/* Words of streams and events, by handle index: what marks and records write. */
static uint32_t stream_words[1 << 16];

static uint32_t *slot(uint32_t *table, uint64_t handle)
{
    return &table[handle >> 16 & 0xffff];
}

static uint8_t *address(const struct tl_host *host, uint64_t at, bool arena)
{
    return arena ? host->view->arena + at : (uint8_t *)(uintptr_t)at;
}

static void copy_box(const struct tl_host *host, const struct weir_op_copy_3d_in *in)
{
    for (uint64_t z = 0; z < in->depth; z++) {
        for (uint64_t y = 0; y < in->height; y++) {
            memcpy(address(host, in->dst_addr, in->dst_kind == 1) +
                       (z * in->dst_height + y) * in->dst_pitch,
                   address(host, in->src_addr, in->src_kind == 1) +
                       (z * in->src_height + y) * in->src_pitch,
                   in->width);
        }
    }
}

static void fill(const struct weir_op_memset_in *in)
{
    for (uint64_t y = 0; y < in->height; y++) {
        for (uint64_t x = 0; x < in->width; x++) {
            memcpy((uint8_t *)(uintptr_t)in->dst + y * in->pitch + x * in->element_bytes,
                   &in->value, in->element_bytes);
        }
    }
}

#define DECODE(op, name)                                                                           \
    struct weir_op_##op##_in name;                                                                 \
    bool name##_ok =                                                                               \
        weir_ops[WEIR_OP_##op].in_decode(record + 1, record->len_bytes - sizeof *record, &name);   \
    assert(name##_ok);                                                                             \
    (void)name##_ok

static bool is_held(struct tl_host *host)
{
    pthread_mutex_lock(&host->lock);
    bool held = host->hold;
    pthread_mutex_unlock(&host->lock);
    return held;
}

static bool refuses_functions(struct tl_host *host)
{
    pthread_mutex_lock(&host->lock);
    bool refuses = host->refuses_functions;
    pthread_mutex_unlock(&host->lock);
    return refuses;
}

/* A flat switch over the operations that the tests use. */
static void serve(struct tl_host *host, const struct weir_record *record)
{
    bool posted = record->flags & WEIR_RECORD_POSTED;
    const void *reply = NULL;
    int32_t status = 0;
    struct weir_op_vmm_reserve_out reserved = {0};
    struct weir_op_vmm_reserve_any_out reserved_any = {0};
    struct weir_op_mem_grant_out grant = {0};
    struct weir_op_mem_info_out info = {.free = 1 << 20, .total = WINDOW_BYTES};
    struct weir_op_event_elapsed_out elapsed = {.milliseconds = 1.5f};
    struct weir_op_event_record_out recorded = {0};
    struct weir_op_echo_out echo = {0};
    switch ((int)record->op) {
    case WEIR_OP_ctx_create: {
        DECODE(ctx_create, in);
        *slot(stream_words, in.legacy) = in.legacy_word;
        break;
    }
    case WEIR_OP_stream_create: {
        DECODE(stream_create, in);
        *slot(stream_words, in.s) = in.word;
        break;
    }
    case WEIR_OP_stream_mark: {
        DECODE(stream_mark, in);
        write_word(host, *slot(stream_words, in.s), in.value);
        break;
    }
    case WEIR_OP_stream_query:
    case WEIR_OP_event_query:
        status = is_held(host) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
        break;
    case WEIR_OP_event_record: {
        DECODE(event_record, in);
        if (in.word != WEIR_WORD_NONE) {
            write_word(host, in.word, in.value);
        }
        reply = &recorded;
        break;
    }
    case WEIR_OP_mem_grant: {
        DECODE(mem_grant, in);
        uint64_t bytes = (in.bytes + 4095) & ~4095ull;
        if (host->granted + bytes > WINDOW_BYTES) {
            status = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        grant.base = (uint64_t)(uintptr_t)host->window + host->granted;
        grant.bytes = bytes;
        grant.chunk = host->granted + 1;
        host->granted += bytes;
        pthread_mutex_lock(&host->lock);
        host->chunks++;
        pthread_mutex_unlock(&host->lock);
        reply = &grant;
        break;
    }
    case WEIR_OP_vmm_reserve: {
        DECODE(vmm_reserve, in);
        reserved.base = VMM_BASE + host->reserved;
        host->reserved += in.bytes;
        reply = &reserved;
        break;
    }
    case WEIR_OP_vmm_reserve_any: {
        DECODE(vmm_reserve_any, in);
        reserved_any.base = VMM_BASE + host->reserved;
        host->reserved += in.bytes;
        reply = &reserved_any;
        break;
    }
    case WEIR_OP_vmm_map_host: {
        int fd = weir_memfd_sealed("host memory", 4096);
        (void)!host->transport->ops->send_fd(host->transport, fd);
        close(fd);
        break;
    }
    case WEIR_OP_mem_return:
        pthread_mutex_lock(&host->lock);
        host->chunks--;
        pthread_mutex_unlock(&host->lock);
        break;
    case WEIR_OP_host_replace:
        status = CUDA_ERROR_NOT_SUPPORTED;
        break;
    case WEIR_OP_mem_info:
        reply = &info;
        break;
    case WEIR_OP_copy: {
        DECODE(copy, in);
        memcpy(address(host, in.dst, in.flags & 1), address(host, in.src, in.flags & 2), in.bytes);
        break;
    }
    case WEIR_OP_copy_3d: {
        DECODE(copy_3d, in);
        copy_box(host, &in);
        break;
    }
    case WEIR_OP_memset: {
        DECODE(memset, in);
        fill(&in);
        break;
    }
    case WEIR_OP_event_elapsed:
        reply = &elapsed;
        break;
    case WEIR_OP_host_func: {
        DECODE(host_func, in);
        struct weir_op_host_func_call_in call = {.token = in.token};
        call.ticket = refuses_functions(host) ? 0 : in.token + 1000;
        send_record(host, WEIR_OP_host_func_call, NULL, &call, 0);
        break;
    }
    case WEIR_OP_echo: {
        DECODE(echo, in);
        echo.value = in.value;
        reply = &echo;
        break;
    }
    default:
        break;
    }
    pthread_mutex_lock(&host->lock);
    host->counts[record->op]++;
    pthread_mutex_unlock(&host->lock);
    if (!posted) {
        send_record(host, (enum weir_op)record->op, record, reply, status);
    }
}

static bool stopping(struct tl_host *host)
{
    pthread_mutex_lock(&host->lock);
    bool stop = host->stop;
    pthread_mutex_unlock(&host->lock);
    return stop;
}

static void *host_main(void *arg)
{
    struct tl_host *host = arg;
    while (!stopping(host)) {
        const struct weir_record *record;
        const void *bulk;
        size_t bulk_bytes;
        enum weir_status status = host->transport->ops->receive(
            host->transport, &record, &bulk, &bulk_bytes, 0, 20 * WEIR_NS_PER_MS);
        if (status == WEIR_OK) {
            serve(host, record);
        } else if (status != WEIR_ERR_TIMED_OUT) {
            break;
        }
    }
    return NULL;
}

struct tl_host *tl_host_start(void)
{
    struct tl_host *host = calloc(1, sizeof *host);
    struct weir_transport *guest = NULL;
    struct weir_segment_params params = {
        .n_words = 1024, .ring_bytes = 1 << 20, .arena_bytes = 4 << 20};
    assert(host);
    pthread_mutex_init(&host->lock, NULL);
    enum weir_status status = tl_loop_create(&params, &host->transport, &guest);
    assert(status == WEIR_OK);
    host->view = host->transport->ops->view(host->transport);
    host->window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(host->window != MAP_FAILED);
    pthread_create(&host->thread, NULL, host_main, host);
    struct weir_welcome welcome = {
        .window_base = (uint64_t)(uintptr_t)host->window,
        .window_bytes = WINDOW_BYTES,
        .n_devices = 1,
        .devices = {
            {.name = "test", .total_memory_bytes = WINDOW_BYTES, .stream_priority_greatest = -5}}};
    CUresult result = weir_guest_start(guest, &welcome);
    assert(result == CUDA_SUCCESS);
    (void)result;
    (void)status;
    return host;
}

static void end_thread(struct tl_host *host)
{
    pthread_mutex_lock(&host->lock);
    host->stop = true;
    pthread_mutex_unlock(&host->lock);
    pthread_join(host->thread, NULL);
}

void tl_host_kill(struct tl_host *host)
{
    end_thread(host);
    host->transport->ops->destroy(host->transport);
    host->gone = true;
}

void tl_host_stop(struct tl_host *host)
{
    weir_guest_stop();
    if (!host->gone) {
        end_thread(host);
        host->transport->ops->destroy(host->transport);
    }
    munmap(host->window, WINDOW_BYTES);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

unsigned int tl_host_count(struct tl_host *host, enum weir_op op)
{
    pthread_mutex_lock(&host->lock);
    unsigned int count = host->counts[op];
    pthread_mutex_unlock(&host->lock);
    return count;
}

unsigned int tl_host_chunks(struct tl_host *host)
{
    pthread_mutex_lock(&host->lock);
    unsigned int chunks = host->chunks;
    pthread_mutex_unlock(&host->lock);
    return chunks;
}

void tl_host_refuse_functions(struct tl_host *host)
{
    pthread_mutex_lock(&host->lock);
    host->refuses_functions = true;
    pthread_mutex_unlock(&host->lock);
}

void tl_host_fail(struct tl_host *host, int error, bool sticky)
{
    struct weir_segment_header *header = host->view->header;
    __atomic_store_n(&header->deferred_error, (uint32_t)error, __ATOMIC_RELAXED);
    if (sticky) {
        __atomic_store_n(&header->sticky_error, (uint32_t)error, __ATOMIC_RELEASE);
    }
    __atomic_add_fetch(&header->deferred_seq, 1, __ATOMIC_RELEASE);
}

void tl_host_drain(void)
{
    struct weir_op_echo_out out = {0};
    CUresult result =
        weir_call_echo(weir_guest_channel(), &(struct weir_op_echo_in){.value = 7}, &out);
    assert(result == CUDA_SUCCESS && out.value == 7);
    (void)result;
}
