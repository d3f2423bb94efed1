/*
 * The undocumented tables of cuGetExportTable that unmodified libraries need.
 *
 * A table is an array of pointers whose slot 0 is its size in bytes (context-local storage alone
 * has no size slot); callers check that it is large enough and call slots by number. Every
 * libcudart asks for six tables before its first call and checks one keyed hash; cuBLAS, cuBLASLt
 * and cuFFT ask for three more. Slots that no library was seen to call return
 * CUDA_ERROR_NOT_SUPPORTED, and unknown tables are refused: every known caller survives a refusal,
 * but not a table that claims success.
 *
 * All support for such tables is in this file. WEIR_WITH_EXPORT_TABLES=OFF leaves it out; then
 * programs that use the Driver API directly still work, programs on libcudart do not.
 *
 * Public sources: the table names, layouts and slot numbers and the integrity hash are published by
 * ZLUDA (vosen/ZLUDA, MIT/Apache-2.0) and SveSop/nvcuda (LGPL); MD2 is RFC 1319, HMAC RFC 2104. The
 * rest was found by black-box observation of libcudart 12.4, 13.0, 13.1, cuBLAS, cuFFT, cuDNN and
 * NCCL against our own library. No code was taken from anywhere.
 */
#include "proto/common/common.h"

#include "base/log.h"
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const struct weir_common_ops *front;

void weir_common_init(const struct weir_common_ops *ops)
{
    front = ops;
}

#if WEIR_WITH_EXPORT_TABLES

static CUresult not_supported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult succeed(void)
{
    return CUDA_SUCCESS;
}

/* ---- CUDART_INTERFACE: the primary context's handle, before anybody retains it. */

static CUresult cudart_primary_context(CUcontext *ret_context, CUdevice device)
{
    WEIR_FAIL_IF(!front->initialized(), CUDA_ERROR_NOT_INITIALIZED);
    return front->primary_context(device, ret_context);
}

/*
 * ---- TOOLS_RUNTIME_CALLBACK_HOOKS: words that enable hooks; callers keep pointers to them.
 *
 * The runtime reads the first array as 32-bit words, one for each of its functions by the numbers
 * of cupti_runtime_cbid.h. Where the word is not 0, it calls slot 1 at the begin and at the end of
 * the function, with the number and a struct, here runtime_call. (Seen in libcudart 13.0.)
 */

#define HOOK_WORDS_A 1024 /* both counts were read from drivers 535 and 550 */
#define HOOK_WORDS_B 14
static uint64_t hook_words_a[HOOK_WORDS_A];
static uint64_t hook_words_b[HOOK_WORDS_B];

struct runtime_call {
    uint32_t bytes; /* 0x78 */
    uint32_t pad;
    uint64_t unknown[3];
    uint64_t *scratch;
    int *result;
    const char *name;
    const void *params;
    CUcontext context;
    uint64_t unknown_too;
    uint32_t id;
    uint32_t site; /* 0: begin, 1: end */
    const void *symbol;
};
_Static_assert(offsetof(struct runtime_call, symbol) == 88, "as the runtime lays it out");

typedef void (*runtime_told_fn)(const struct weir_common_runtime_call *call);
static runtime_told_fn runtime_told; /* atomic; NULL: nobody wants to know */

static CUresult hooks_called(uint32_t id, const struct runtime_call *call)
{
    runtime_told_fn told = __atomic_load_n(&runtime_told, __ATOMIC_ACQUIRE);
    if (told && call && call->bytes >= offsetof(struct runtime_call, symbol) + sizeof(void *)) {
        const struct weir_common_runtime_call about = {.id = id,
                                                       .site = call->site,
                                                       .name = call->name,
                                                       .params = call->params,
                                                       .result = call->result,
                                                       .scratch = call->scratch,
                                                       .context = call->context,
                                                       .symbol = call->symbol};
        told(&about);
    }
    return CUDA_SUCCESS;
}

void weir_common_watch_runtime(runtime_told_fn told)
{
    __atomic_store_n(&runtime_told, told, __ATOMIC_RELEASE);
    for (int i = 0; i < HOOK_WORDS_A; i++) {
        __atomic_store_n(&hook_words_a[i], told ? UINT64_C(0x100000001) : 0, __ATOMIC_RELAXED);
    }
}

static CUresult hooks_words_a(void **ret_words, size_t *ret_count)
{
    *ret_words = hook_words_a;
    *ret_count = HOOK_WORDS_A;
    return CUDA_SUCCESS;
}

static CUresult hooks_words_b(void **ret_words, size_t *ret_count)
{
    *ret_words = hook_words_b;
    *ret_count = HOOK_WORDS_B;
    return CUDA_SUCCESS;
}

static CUresult hooks_zero(void *in, uint64_t *ret_value)
{
    (void)in;
    *ret_value = 0;
    return CUDA_SUCCESS;
}

/* ---- TOOLS_TLS: returns the current context; the caller does not initialise its variable. */

static CUresult tls_current_context(void **ret_context)
{
    *ret_context = front->current_context();
    return CUDA_SUCCESS;
}

/* ---- CONTEXT_LOCAL_STORAGE: a NULL or -1 context is the current one. */

static CUresult storage_of(CUcontext context, struct weir_ctx_storage **ret_storage,
                           CUcontext *ret_context)
{
    WEIR_FAIL_IF(!front->initialized(), CUDA_ERROR_NOT_INITIALIZED);
    if (!context || context == (CUcontext)-1) {
        context = front->current_context();
    }
    *ret_storage = context ? front->context_storage(context) : NULL;
    *ret_context = context;
    return *ret_storage ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult storage_put(CUcontext context, void *key, void *value,
                            weir_ctx_storage_fn destructor)
{
    struct weir_ctx_storage *storage;
    WEIR_TRY(storage_of(context, &storage, &context));
    enum weir_status status = weir_ctx_storage_put(storage, key, value, destructor);
    WEIR_FAIL_IF(status == WEIR_ERR_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
    return status == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult storage_delete(CUcontext context, void *key)
{
    struct weir_ctx_storage *storage;
    WEIR_TRY(storage_of(context, &storage, &context));
    return weir_ctx_storage_remove(storage, key) == WEIR_OK ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult storage_get(void **ret_value, CUcontext context, void *key)
{
    struct weir_ctx_storage *storage;
    WEIR_TRY(storage_of(context, &storage, &context));
    /* The runtime tells "no context" (201) from "nothing stored yet" (400). */
    return weir_ctx_storage_get(storage, key, ret_value) == WEIR_OK ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- CONTEXT_CHECKS */

static CUresult checks_context(CUcontext context, uint32_t *ret_flags, void **ret_data)
{
    (void)context;
    (void)ret_data;
    *ret_flags = 0;
    return CUDA_SUCCESS;
}

/* ---- TOOLS_CONTEXT: numbers of contexts and streams; cuBLAS finds its workspaces by them. */

static CUresult tools_context_id(CUcontext context, uint64_t *ret_id)
{
    *ret_id = 0;
    if (!context) {
        return CUDA_SUCCESS;
    }
    unsigned long long id;
    WEIR_TRY(front->context_id(context, &id));
    *ret_id = id;
    return CUDA_SUCCESS;
}

/* The token of a stream is its handle; the legacy stream's own value stands for NULL. */
static CUresult tools_stream_token(CUcontext context, CUstream stream, void **ret_token)
{
    *ret_token = NULL;
    WEIR_FAIL_IF(!context && !stream, CUDA_ERROR_INVALID_HANDLE);
    *ret_token = stream ? (void *)stream : (void *)CU_STREAM_LEGACY;
    return CUDA_SUCCESS;
}

static CUresult tools_stream_number(CUcontext context, void *token, uint64_t *ret_number)
{
    WEIR_FAIL_IF(!token || !ret_number, CUDA_ERROR_INVALID_VALUE);
    *ret_number = 0;
    unsigned long long id;
    WEIR_TRY(front->stream_id(context, (CUstream)token, &id));
    *ret_number = id;
    return CUDA_SUCCESS;
}

/* ---- TOOLS_MODULE: visit a module's functions until the visitor has enough. */

typedef CUresult (*function_visit_fn)(void *user, CUfunction function, const void *unused);

static CUresult tools_module_functions(CUcontext context, CUmodule module, function_visit_fn visit,
                                       void *user)
{
    (void)context;
    CUfunction function;
    for (unsigned int i = 0; front->module_function(module, i, &function) == CUDA_SUCCESS; i++) {
        if (visit(user, function, NULL) == CUDA_SUCCESS) {
            break;
        }
    }
    /* cuFFT interprets success as failure here; it accepts the value 1. */
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- INTEGRITY_CHECK: HMAC-MD2 over versions, process, thread, tables and devices. */

#define MD2_BLOCK 16

static const uint8_t md2_pi[256] = {
    0x29, 0x2e, 0x43, 0xc9, 0xa2, 0xd8, 0x7c, 0x01, 0x3d, 0x36, 0x54, 0xa1, 0xec, 0xf0, 0x06, 0x13,
    0x62, 0xa7, 0x05, 0xf3, 0xc0, 0xc7, 0x73, 0x8c, 0x98, 0x93, 0x2b, 0xd9, 0xbc, 0x4c, 0x82, 0xca,
    0x1e, 0x9b, 0x57, 0x3c, 0xfd, 0xd4, 0xe0, 0x16, 0x67, 0x42, 0x6f, 0x18, 0x8a, 0x17, 0xe5, 0x12,
    0xbe, 0x4e, 0xc4, 0xd6, 0xda, 0x9e, 0xde, 0x49, 0xa0, 0xfb, 0xf5, 0x8e, 0xbb, 0x2f, 0xee, 0x7a,
    0xa9, 0x68, 0x79, 0x91, 0x15, 0xb2, 0x07, 0x3f, 0x94, 0xc2, 0x10, 0x89, 0x0b, 0x22, 0x5f, 0x21,
    0x80, 0x7f, 0x5d, 0x9a, 0x5a, 0x90, 0x32, 0x27, 0x35, 0x3e, 0xcc, 0xe7, 0xbf, 0xf7, 0x97, 0x03,
    0xff, 0x19, 0x30, 0xb3, 0x48, 0xa5, 0xb5, 0xd1, 0xd7, 0x5e, 0x92, 0x2a, 0xac, 0x56, 0xaa, 0xc6,
    0x4f, 0xb8, 0x38, 0xd2, 0x96, 0xa4, 0x7d, 0xb6, 0x76, 0xfc, 0x6b, 0xe2, 0x9c, 0x74, 0x04, 0xf1,
    0x45, 0x9d, 0x70, 0x59, 0x64, 0x71, 0x87, 0x20, 0x86, 0x5b, 0xcf, 0x65, 0xe6, 0x2d, 0xa8, 0x02,
    0x1b, 0x60, 0x25, 0xad, 0xae, 0xb0, 0xb9, 0xf6, 0x1c, 0x46, 0x61, 0x69, 0x34, 0x40, 0x7e, 0x0f,
    0x55, 0x47, 0xa3, 0x23, 0xdd, 0x51, 0xaf, 0x3a, 0xc3, 0x5c, 0xf9, 0xce, 0xba, 0xc5, 0xea, 0x26,
    0x2c, 0x53, 0x0d, 0x6e, 0x85, 0x28, 0x84, 0x09, 0xd3, 0xdf, 0xcd, 0xf4, 0x41, 0x81, 0x4d, 0x52,
    0x6a, 0xdc, 0x37, 0xc8, 0x6c, 0xc1, 0xab, 0xfa, 0x24, 0xe1, 0x7b, 0x08, 0x0c, 0xbd, 0xb1, 0x4a,
    0x78, 0x88, 0x95, 0x8b, 0xe3, 0x63, 0xe8, 0x6d, 0xe9, 0xcb, 0xd5, 0xfe, 0x3b, 0x00, 0x1d, 0x39,
    0xf2, 0xef, 0xb7, 0x0e, 0x66, 0x58, 0xd0, 0xe4, 0xa6, 0x77, 0x72, 0xf8, 0xeb, 0x75, 0x4b, 0x0a,
    0x31, 0x44, 0x50, 0xb4, 0x8f, 0xed, 0x1f, 0x1a, 0xdb, 0x99, 0x8d, 0x33, 0x9f, 0x11, 0x83, 0x14};

struct md2 {
    uint8_t state[3 * MD2_BLOCK];
    uint8_t checksum[MD2_BLOCK];
    uint8_t buffer[MD2_BLOCK];
    uint32_t used;
};

static void md2_block(struct md2 *md2, const uint8_t *block, bool with_checksum)
{
    uint8_t last = md2->checksum[MD2_BLOCK - 1];
    for (int i = 0; i < MD2_BLOCK; i++) {
        md2->state[MD2_BLOCK + i] = block[i];
        md2->state[2 * MD2_BLOCK + i] = block[i] ^ md2->state[i];
        if (with_checksum) {
            md2->checksum[i] ^= md2_pi[block[i] ^ last];
            last = md2->checksum[i];
        }
    }
    uint8_t t = 0;
    for (int round = 0; round < 18; round++) {
        for (int i = 0; i < 3 * MD2_BLOCK; i++) {
            md2->state[i] ^= md2_pi[t];
            t = md2->state[i];
        }
        t = (uint8_t)(t + round);
    }
}

static void md2_update(struct md2 *md2, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        md2->buffer[md2->used++] = at[i];
        if (md2->used == MD2_BLOCK) {
            md2_block(md2, md2->buffer, true);
            md2->used = 0;
        }
    }
}

static void md2_final(struct md2 *md2, uint8_t digest[MD2_BLOCK])
{
    uint8_t padding[MD2_BLOCK];
    uint32_t n = MD2_BLOCK - md2->used;
    memset(padding, (int)n, n);
    md2_update(md2, padding, n);
    uint8_t checksum[MD2_BLOCK];
    memcpy(checksum, md2->checksum, MD2_BLOCK);
    md2_block(md2, checksum, false);
    memcpy(digest, md2->state, MD2_BLOCK);
}

void weir_common_hmac_md2(const uint8_t key[MD2_BLOCK], const void *message, size_t bytes,
                          uint8_t digest[MD2_BLOCK])
{
    uint8_t pad[MD2_BLOCK];
    uint8_t inner[MD2_BLOCK];
    for (int i = 0; i < MD2_BLOCK; i++) {
        pad[i] = key[i] ^ 0x36;
    }
    struct md2 md2 = {.used = 0};
    md2_update(&md2, pad, sizeof(pad));
    md2_update(&md2, message, bytes);
    md2_final(&md2, inner);
    for (int i = 0; i < MD2_BLOCK; i++) {
        pad[i] = key[i] ^ 0x5c;
    }
    md2 = (struct md2){.used = 0};
    md2_update(&md2, pad, sizeof(pad));
    md2_update(&md2, inner, sizeof(inner));
    md2_final(&md2, digest);
}

#define INTEGRITY_MAX_DEVICES 64

struct integrity_message {
    uint32_t driver_version;
    uint32_t version;
    uint32_t process;
    uint32_t thread;
    uint64_t cudart_table;
    uint64_t integrity_table;
    uint64_t function;
    uint64_t unix_time_s;
    struct {
        uint8_t uuid[16];
        int32_t pci_domain;
        int32_t pci_bus;
        int32_t pci_device;
    } devices[INTEGRITY_MAX_DEVICES];
};
_Static_assert(offsetof(struct integrity_message, devices) == 48, "hashed as it lies");

static const uint8_t integrity_key[MD2_BLOCK] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                                 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};

static CUresult integrity_check(uint32_t version, uint64_t unix_time_s, uint64_t ret_hash[2]);

/* ---- The tables. Data pointers and function pointers have the same size on every CUDA
 * platform. */

#define SLOT(function) ((void *)(uintptr_t)(function))
#define SIZE(slots)    ((void *)(uintptr_t)((slots) * sizeof(void *)))
#define NS             SLOT(not_supported)

enum {
    CUDART_SLOTS = 13,
    HOOKS_SLOTS = 7,
    TLS_SLOTS = 3,
    CHECKS_SLOTS = 17,
    INTEGRITY_SLOTS = 3,
    CONTEXT_SLOTS = 96,
    MODULE_SLOTS = 105,
    SM90_SLOTS = 17
};

static void *cudart_table[CUDART_SLOTS] = {
    SIZE(CUDART_SLOTS), NS, SLOT(cudart_primary_context), NS, NS, NS, NS, NS, NS, NS, NULL, NS, NS};
static void *hooks_table[HOOKS_SLOTS] = {
    SIZE(HOOKS_SLOTS), SLOT(hooks_called), SLOT(hooks_words_a), SLOT(succeed),
    SLOT(hooks_zero),  SLOT(succeed),      SLOT(hooks_words_b)};
static void *tls_table[TLS_SLOTS] = {SIZE(TLS_SLOTS), SLOT(succeed), SLOT(tls_current_context)};
static void *storage_table[4] = {SLOT(storage_put), SLOT(storage_delete), SLOT(storage_get), NULL};
static void *checks_table[CHECKS_SLOTS] = {SIZE(CHECKS_SLOTS), NS, SLOT(checks_context),
                                           SLOT(succeed)};
static void *integrity_table[INTEGRITY_SLOTS] = {SIZE(INTEGRITY_SLOTS), SLOT(integrity_check),
                                                 SLOT(succeed)};
static void *context_table[CONTEXT_SLOTS] = {
    SIZE(CONTEXT_SLOTS), [4] = SLOT(tools_context_id), [39] = SLOT(tools_stream_number),
    [51] = SLOT(tools_stream_token)};
static void *module_table[MODULE_SLOTS] = {SIZE(MODULE_SLOTS), [7] = SLOT(tools_module_functions)};
/* cuBLASLt needs this table on sm_90, but accepts a refusal from slot 4. */
static void *sm90_table[SM90_SLOTS] = {SIZE(SM90_SLOTS)};

static CUresult integrity_check(uint32_t version, uint64_t unix_time_s, uint64_t ret_hash[2])
{
    WEIR_FAIL_IF(!front->initialized(), CUDA_ERROR_NOT_INITIALIZED);
    if (version % 10 < 2) { /* libcudart first checks two fixed answers */
        ret_hash[0] = version % 10 == 0 ? 0x3341181C03CB675Cull : 0x1841181C03CB675Cull;
        ret_hash[1] = 0x8ED383AA1F4CD1E8ull;
        return CUDA_SUCCESS;
    }
    struct integrity_message message = {
        .driver_version = (uint32_t)front->driver_version(),
        .version = version,
        .process = (uint32_t)getpid(),
        .thread = (uint32_t)pthread_self(),
        .cudart_table = (uintptr_t)cudart_table,
        .integrity_table = (uintptr_t)integrity_table,
        .function = (uintptr_t)integrity_table[1],
        .unix_time_s = unix_time_s,
    };
    int count = front->device_count();
    count = WEIR_MIN(count, INTEGRITY_MAX_DEVICES);
    for (int i = 0; i < count; i++) {
        struct weir_common_device device;
        front->device(i, &device);
        memcpy(message.devices[i].uuid, device.uuid.bytes, sizeof(message.devices[i].uuid));
        message.devices[i].pci_domain = device.pci_domain;
        message.devices[i].pci_bus = device.pci_bus;
        message.devices[i].pci_device = device.pci_device;
    }
    uint8_t digest[MD2_BLOCK];
    weir_common_hmac_md2(integrity_key, &message,
                         offsetof(struct integrity_message, devices) +
                             (size_t)count * sizeof(message.devices[0]),
                         digest);
    memcpy(ret_hash, digest, sizeof(digest));
    return CUDA_SUCCESS;
}

static const struct {
    uint8_t id[16];
    void **table;
    uint32_t slots; /* empty slots get not_supported; 0: leave the table unchanged */
} tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     cudart_table,
     0},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     hooks_table,
     0},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     tls_table,
     0},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     storage_table,
     0},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     checks_table,
     CHECKS_SLOTS},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     integrity_table,
     0},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     context_table,
     CONTEXT_SLOTS},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     module_table,
     MODULE_SLOTS},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     sm90_table,
     SM90_SLOTS},
};

static void fill_tables(void)
{
    for (size_t i = 0; i < WEIR_COUNT(tables); i++) {
        for (uint32_t slot = 1; slot < tables[i].slots; slot++) {
            if (!tables[i].table[slot]) {
                tables[i].table[slot] = NS;
            }
        }
    }
}

/* NVIDIA's tools ask for this table first (seen: libcupti of CUDA 13.0). */
static const uint8_t tools_id[16] = {0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e,
                                     0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5, 0xf7, 0x4b};

static void log_refused(const CUuuid *id)
{
    static bool told;
    const uint8_t *b = (const uint8_t *)id->bytes;
    if (memcmp(b, tools_id, sizeof tools_id) == 0 && weir_log_level() >= WEIR_LOG_ERROR &&
        !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) {
        weir_log_error(
            "front: a profiler or debugger of NVIDIA's (its libcupti, nsys, ncu, cuda-gdb, "
            "compute-sanitizer) finds no driver here: a program that calls CUPTI before cuInit "
            "needs LD_PRELOAD=libcupti.so.13 (or .12), one that opens libcupti by its path needs "
            "Weir's; for calls there is WEIR_TRACE");
    }
    weir_log_debug("front: export table refused id=%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
                   "%02x%02x%02x%02x%02x%02x",
                   b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                   b[13], b[14], b[15]);
}

CUresult weir_common_export_table(const void **ret_table, const CUuuid *id)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    WEIR_FAIL_IF(!ret_table || !id, CUDA_ERROR_INVALID_VALUE);
    pthread_once(&once, fill_tables);
    for (size_t i = 0; i < WEIR_COUNT(tables); i++) {
        if (memcmp(id->bytes, tables[i].id, sizeof(tables[i].id)) == 0) {
            *ret_table = tables[i].table;
            return CUDA_SUCCESS;
        }
    }
    log_refused(id);
    *ret_table = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

#else /* !WEIR_WITH_EXPORT_TABLES */

void weir_common_watch_runtime(void (*told)(const struct weir_common_runtime_call *call))
{
    (void)told;
}

CUresult weir_common_export_table(const void **ret_table, const CUuuid *id)
{
    if (ret_table && id) {
        *ret_table = NULL;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

#endif
