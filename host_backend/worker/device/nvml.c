/*
 * Passes guests' questions to the real libnvidia-ml.so.1.
 *
 * A question names a row of proto/nvml/functions.def; its shape says how the function is called and
 * how long its data is. All calls are made under one lock, in a buffer much larger than any
 * structure, and answers are kept: a STATIC one for ever, a LIVE one for a tenth of a second, so
 * that no number of guests makes more calls than that. Only the first KEY_BYTES of a versioned
 * structure are input; what they hold is part of the answer's key.
 *
 * The library is loaded at the first question: it takes tens of milliseconds. If the loader finds
 * Weir's own library (a host run inside a guest), its export table shows that, and it is not used.
 */
#include "host_backend/worker/device/nvml.h"

#include "base/clock.h"
#include "base/gpu_uuid.h"
#include "base/log.h"
#include "proto/nvml/session_table.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LIVE_NS     (100 * WEIR_NS_PER_MS)
#define KEPT_MAX    256
#define KEY_BYTES   64
#define FIELD_BYTES sizeof(nvmlFieldValue_t)

static const struct weir_nvml_row rows[] = {
#define WEIR_NVML_CARRY(name, shape, bytes, keep)                                                  \
    {#name, WEIR_NVML_##shape, bytes, WEIR_NVML_##keep},
#include "proto/nvml/functions.def"
    {"nvmlDeviceGetFieldValues", WEIR_NVML_FIELD, FIELD_BYTES, WEIR_NVML_LIVE}, {.name = NULL}};

#define N_ROWS (WEIR_COUNT(rows) - 1)

/* A question in the form in which answers are kept. */
struct key {
    uint32_t row;
    uint32_t arguments[WEIR_NVML_ARGUMENTS];
    uint32_t n_data;
    uint8_t data[KEY_BYTES];
};

struct kept {
    struct key key;
    uint64_t time_ns; /* 0: empty */
    nvmlReturn_t result;
    uint32_t n_data;
    uint8_t *data;
};

struct weir_nvml {
    const char *path;
    const struct weir_device *device;

    pthread_mutex_t lock; /* guards what follows */
    bool tried;
    void *library; /* NULL: there is none */
    nvmlDevice_t handle;
    void *functions[N_ROWS]; /* NULL: this driver lacks the function */
    struct kept kept[KEPT_MAX];
};

const struct weir_nvml_row *weir_nvml_rows(void)
{
    return rows;
}

enum weir_status weir_nvml_create(const char *library, const struct weir_device *device,
                                  struct weir_nvml **ret_nvml)
{
    struct weir_nvml *nvml = calloc(1, sizeof *nvml);

    WEIR_FAIL_IF(!nvml, WEIR_ERR_NO_MEMORY);
    nvml->path = library;
    nvml->device = device;
    pthread_mutex_init(&nvml->lock, NULL);
    *ret_nvml = nvml;
    return WEIR_OK;
}

static void unload(struct weir_nvml *nvml)
{
    dlclose(nvml->library);
    nvml->library = NULL;
}

void weir_nvml_destroy(struct weir_nvml *nvml)
{
    if (!nvml) {
        return;
    }
    if (nvml->library) {
        nvmlReturn_t (*shutdown)(void);

        *(void **)&shutdown = dlsym(nvml->library, "nvmlShutdown");
        if (shutdown) {
            (void)shutdown();
        }
        unload(nvml);
    }
    for (size_t i = 0; i < KEPT_MAX; i++) {
        free(nvml->kept[i].data);
    }
    pthread_mutex_destroy(&nvml->lock);
    free(nvml);
}

/* ---------------------------------------------------------------- the library */

static bool is_weirs_own(void *library)
{
    static const uint8_t id[16] = WEIR_NVML_TABLE_UUID;
    nvmlReturn_t (*get_table)(const void **, const void *);
    const void *table = NULL;

    *(void **)&get_table = dlsym(library, "nvmlInternalGetExportTable");
    return get_table && get_table(&table, id) == NVML_SUCCESS && table;
}

static bool find_handle(const struct weir_nvml *nvml, const struct weir_device *device,
                        nvmlDevice_t *ret_handle)
{
    nvmlReturn_t (*by_uuid)(const char *, nvmlDevice_t *);
    nvmlReturn_t (*by_bus)(const char *, nvmlDevice_t *);
    char text[WEIR_GPU_UUID_BYTES];

    weir_gpu_uuid_text(device->uuid, text);
    *(void **)&by_uuid = dlsym(nvml->library, "nvmlDeviceGetHandleByUUID");
    *(void **)&by_bus = dlsym(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2");
    return (by_uuid && by_uuid(text, ret_handle) == NVML_SUCCESS) ||
           (by_bus && by_bus(device->pci_bus_id, ret_handle) == NVML_SUCCESS);
}

static void load_locked(struct weir_nvml *nvml)
{
    nvmlReturn_t (*init)(void);
    nvmlReturn_t result = NVML_ERROR_FUNCTION_NOT_FOUND;

    nvml->tried = true;
    if (!nvml->path) {
        return;
    }
    nvml->library = dlopen(nvml->path, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library) {
        weir_log_info("nvml: not loaded path=%s why=\"%s\"", nvml->path, dlerror());
        return;
    }
    *(void **)&init = dlsym(nvml->library, "nvmlInit_v2");
    if (!is_weirs_own(nvml->library) && init) {
        result = init();
    }
    if (result != NVML_SUCCESS || !find_handle(nvml, nvml->device, &nvml->handle)) {
        weir_log_info("nvml: of no use path=%s result=%d", nvml->path, (int)result);
        unload(nvml);
        return;
    }
    for (size_t i = 0; i < N_ROWS; i++) {
        nvml->functions[i] = dlsym(nvml->library, rows[i].name);
    }
}

/* ---------------------------------------------------------------- the call */

#define D                nvmlDevice_t
#define U32              uint32_t
#define OUT32            uint32_t *
#define OUT64            unsigned long long *
#define CALL(types, ...) (((nvmlReturn_t(*) types)(uintptr_t)fn)(__VA_ARGS__))

/* Size of the answer for a list. If the list was longer than the room, only the count is
 * returned. */
static uint32_t list_bytes(const struct weir_nvml_answer *answer, uint32_t room, uint32_t each)
{
    uint32_t count;

    memcpy(&count, answer->data, sizeof count);
    return (uint32_t)sizeof count + (count <= room ? count * each : 0);
}

static nvmlReturn_t call_list(void *fn, D d, enum weir_nvml_shape shape, const uint32_t *a,
                              struct weir_nvml_answer *answer)
{
    uint32_t room = shape == WEIR_NVML_N_U ? a[0] : a[1];
    uint8_t *list = answer->data + 16; /* aligned for 64 bits */
    uint32_t count = room;
    nvmlReturn_t result;

    if (shape == WEIR_NVML_N_U) {
        result = CALL((D, OUT32, OUT32), d, &count, room != 0 ? (uint32_t *)(void *)list : NULL);
    } else if (shape == WEIR_NVML_I_N_U) {
        result = CALL((D, U32, OUT32, OUT32), d, a[0], &count,
                      room != 0 ? (uint32_t *)(void *)list : NULL);
    } else {
        result = CALL((D, U32, OUT32, OUT64), d, a[0], &count,
                      room != 0 ? (unsigned long long *)(void *)list : NULL);
    }
    memcpy(answer->data, &count, sizeof count);
    answer->n_data = list_bytes(answer, room, shape == WEIR_NVML_I_N_Q ? 8 : 4);
    memmove(answer->data + sizeof count, list, answer->n_data - sizeof count);
    return result;
}

static nvmlReturn_t call_field(void *fn, D d, const uint32_t *a, struct weir_nvml_answer *answer)
{
    nvmlFieldValue_t *value = (nvmlFieldValue_t *)(void *)answer->data;

    value->fieldId = a[0];
    value->scopeId = a[1];
    answer->n_data = FIELD_BYTES;
    return CALL((D, int, nvmlFieldValue_t *), d, 1, value);
}

static nvmlReturn_t call_last_flush(void *fn, D d, struct weir_nvml_answer *answer)
{
    unsigned long duration_us = 0;

    nvmlReturn_t result = CALL((D, OUT64, unsigned long *), d,
                               (unsigned long long *)(void *)answer->data, &duration_us);
    memcpy(answer->data + 8, &(uint64_t){duration_us}, 8);
    return result;
}

/* One flat switch. The answer's data holds the input, its n_data what the shape gives. */
static nvmlReturn_t call(void *fn, D d, D peer, const struct weir_nvml_row *row, const uint32_t *a,
                         struct weir_nvml_answer *answer)
{
    uint8_t *at = answer->data;
    uint32_t *w = (uint32_t *)(void *)at;
    unsigned long long *q = (unsigned long long *)(void *)at;
    char *text = (char *)at;

    switch (row->shape) {
    case WEIR_NVML_U:
        return CALL((D, OUT32), d, w);
    case WEIR_NVML_UU:
        return CALL((D, OUT32, OUT32), d, w, w + 1);
    case WEIR_NVML_UUU:
        return CALL((D, OUT32, OUT32, OUT32), d, w, w + 1, w + 2);
    case WEIR_NVML_UUUU:
        return CALL((D, OUT32, OUT32, OUT32, OUT32), d, w, w + 1, w + 2, w + 3);
    case WEIR_NVML_Q:
        return CALL((D, OUT64), d, q);
    case WEIR_NVML_QL:
        return call_last_flush(fn, d, answer);
    case WEIR_NVML_I_U:
        return CALL((D, U32, OUT32), d, a[0], w);
    case WEIR_NVML_II_U:
        return CALL((D, U32, U32, OUT32), d, a[0], a[1], w);
    case WEIR_NVML_II_UU:
        return CALL((D, U32, U32, OUT32, OUT32), d, a[0], a[1], w, w + 1);
    case WEIR_NVML_II_Q:
        return CALL((D, U32, U32, OUT64), d, a[0], a[1], q);
    case WEIR_NVML_III_Q:
        return CALL((D, U32, U32, U32, OUT64), d, a[0], a[1], a[2], q);
    case WEIR_NVML_D_U:
        return CALL((D, D, OUT32), d, peer, w);
    case WEIR_NVML_T:
        return CALL((D, char *, U32), d, text, a[0]);
    case WEIR_NVML_I_T:
        return CALL((D, U32, char *, U32), d, a[0], text, a[1]);
    case WEIR_NVML_T0:
        return CALL((D, char *), d, text);
    case WEIR_NVML_S:
    case WEIR_NVML_V:
        return CALL((D, void *), d, at);
    case WEIR_NVML_I_S:
        return CALL((D, U32, void *), d, a[0], at);
    case WEIR_NVML_II_S:
        return CALL((D, U32, U32, void *), d, a[0], a[1], at);
    case WEIR_NVML_VV:
        return CALL((D, void *, void *), d, at, at + answer->n_data / 2);
    case WEIR_NVML_N_U:
    case WEIR_NVML_I_N_U:
    case WEIR_NVML_I_N_Q:
        return call_list(fn, d, row->shape, a, answer);
    case WEIR_NVML_NU:
        return CALL((D, OUT32, U32), d, w, a[0]);
    case WEIR_NVML_SYS_T:
        return CALL((char *, U32), text, a[0]);
    case WEIR_NVML_SYS_S:
    case WEIR_NVML_SYS_V:
        return CALL((void *), at);
    case WEIR_NVML_SYS_VT:
        return CALL((void *, U32), at, a[0]);
    case WEIR_NVML_FIELD:
        return call_field(fn, d, a, answer);
    case WEIR_NVML_SHAPE_COUNT:
        break;
    }
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* ---------------------------------------------------------------- sizes */

static bool is_versioned(enum weir_nvml_shape shape)
{
    return shape == WEIR_NVML_V || shape == WEIR_NVML_VV || shape == WEIR_NVML_SYS_V ||
           shape == WEIR_NVML_SYS_VT;
}

static uint32_t version_bytes_at(const uint8_t *data, uint32_t offset)
{
    uint32_t version;

    memcpy(&version, data + offset, sizeof version);
    return WEIR_NVML_VERSION_BYTES(version);
}

static nvmlReturn_t check_versioned(const struct weir_nvml_row *row,
                                    const struct weir_nvml_question *q)
{
    uint32_t each = row->shape == WEIR_NVML_VV ? q->n_data / 2 : q->n_data;
    uint32_t most = row->shape == WEIR_NVML_VV ? KEY_BYTES / 2 : WEIR_NVML_VERSIONED_MAX;

    if (each < sizeof(uint32_t) || each > most || q->n_data % sizeof(uint32_t) != 0 ||
        version_bytes_at(q->data, 0) != each ||
        version_bytes_at(q->data, q->n_data - each) != each) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    /* Length of the text inside the structure: the library may fill the rest with zeros. */
    WEIR_FAIL_IF(row->shape == WEIR_NVML_SYS_VT && q->arguments[0] > each,
                 NVML_ERROR_INVALID_ARGUMENT);
    return NVML_SUCCESS;
}

/* Check the question's data for its row, and compute the largest size of the answer. */
static nvmlReturn_t measure(const struct weir_nvml_row *row, const struct weir_nvml_question *q,
                            uint32_t *ret_bytes)
{
    static const uint8_t fixed[WEIR_NVML_SHAPE_COUNT] = {
        [WEIR_NVML_U] = 4,     [WEIR_NVML_UU] = 8,   [WEIR_NVML_UUU] = 12,  [WEIR_NVML_UUUU] = 16,
        [WEIR_NVML_Q] = 8,     [WEIR_NVML_QL] = 16,  [WEIR_NVML_I_U] = 4,   [WEIR_NVML_II_U] = 4,
        [WEIR_NVML_II_UU] = 8, [WEIR_NVML_II_Q] = 8, [WEIR_NVML_III_Q] = 8, [WEIR_NVML_D_U] = 4};
    const uint32_t *a = q->arguments;

    *ret_bytes = fixed[row->shape] != 0 ? fixed[row->shape] : row->bytes;
    if (is_versioned(row->shape)) {
        *ret_bytes = q->n_data;
        return check_versioned(row, q);
    }
    WEIR_FAIL_IF(q->n_data != 0 || (row->shape == WEIR_NVML_D_U && !q->peer),
                 NVML_ERROR_INVALID_ARGUMENT);
    switch ((int)row->shape) {
    case WEIR_NVML_T:
    case WEIR_NVML_SYS_T:
    case WEIR_NVML_I_T:
        *ret_bytes = row->shape == WEIR_NVML_I_T ? a[1] : a[0];
        return *ret_bytes <= WEIR_NVML_TEXT_MAX ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    case WEIR_NVML_N_U:
        return a[0] <= WEIR_NVML_ARRAY_MAX ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    case WEIR_NVML_I_N_U:
    case WEIR_NVML_I_N_Q:
        return a[1] <= WEIR_NVML_ARRAY_MAX ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    case WEIR_NVML_NU:
        *ret_bytes = a[0];
        return a[0] <= WEIR_NVML_ARRAY_MAX ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    default:
        return NVML_SUCCESS;
    }
}

/* The number of arguments that the shape uses. Others must not make one question into several. */
static uint32_t n_arguments(enum weir_nvml_shape shape)
{
    static const uint8_t n[WEIR_NVML_SHAPE_COUNT] = {
        [WEIR_NVML_I_U] = 1,   [WEIR_NVML_II_U] = 2,  [WEIR_NVML_II_UU] = 2,  [WEIR_NVML_II_Q] = 2,
        [WEIR_NVML_III_Q] = 3, [WEIR_NVML_T] = 1,     [WEIR_NVML_I_T] = 2,    [WEIR_NVML_I_S] = 1,
        [WEIR_NVML_II_S] = 2,  [WEIR_NVML_N_U] = 1,   [WEIR_NVML_I_N_U] = 2,  [WEIR_NVML_I_N_Q] = 2,
        [WEIR_NVML_NU] = 1,    [WEIR_NVML_SYS_T] = 1, [WEIR_NVML_SYS_VT] = 1, [WEIR_NVML_FIELD] = 2,
        [WEIR_NVML_D_U] = 1};

    return n[shape];
}

/* Cut a text behind its end. */
static void trim(const struct weir_nvml_row *row, struct weir_nvml_answer *answer)
{
    if (row->shape == WEIR_NVML_T || row->shape == WEIR_NVML_I_T || row->shape == WEIR_NVML_SYS_T) {
        uint32_t len = (uint32_t)strnlen((char *)answer->data, answer->n_data);

        answer->n_data = len < answer->n_data ? len + 1 : len;
    }
}

/* ---------------------------------------------------------------- kept answers */

static bool lasts(nvmlReturn_t result)
{
    return result == NVML_SUCCESS || result == NVML_ERROR_NOT_SUPPORTED ||
           result == NVML_ERROR_INVALID_ARGUMENT || result == NVML_ERROR_INSUFFICIENT_SIZE;
}

/* Find the kept answer, or the place to keep it in. */
static struct kept *find_kept(struct weir_nvml *nvml, const struct key *key, bool *ret_fresh)
{
    struct kept *oldest = &nvml->kept[0];
    uint64_t now_ns = weir_clock_now_ns();

    *ret_fresh = false;
    for (size_t i = 0; i < KEPT_MAX; i++) {
        struct kept *k = &nvml->kept[i];

        if (k->time_ns != 0 && memcmp(&k->key, key, sizeof *key) == 0) {
            *ret_fresh = now_ns - k->time_ns < LIVE_NS ||
                         (rows[key->row].keep == WEIR_NVML_STATIC && lasts(k->result));
            return k;
        }
        oldest = k->time_ns < oldest->time_ns ? k : oldest;
    }
    return oldest;
}

static void keep(struct kept *k, const struct key *key, nvmlReturn_t result,
                 const struct weir_nvml_answer *answer)
{
    uint8_t *data = malloc(answer->n_data + 1);

    free(k->data);
    *k = (struct kept){.key = *key, .result = result, .n_data = answer->n_data, .data = data};
    if (data) {
        memcpy(data, answer->data, answer->n_data);
        k->time_ns = weir_clock_now_ns();
    }
}

static nvmlReturn_t ask_locked(struct weir_nvml *nvml, const struct key *key,
                               const struct weir_device *peer_device, uint32_t bytes,
                               struct weir_nvml_answer *answer)
{
    const struct weir_nvml_row *row = &rows[key->row];
    void *fn = nvml->functions[key->row];
    nvmlDevice_t peer = NULL;
    bool fresh;

    if (!fn || (peer_device && !find_handle(nvml, peer_device, &peer))) {
        return fn ? NVML_ERROR_NOT_FOUND : NVML_ERROR_FUNCTION_NOT_FOUND;
    }
    struct kept *k = find_kept(nvml, key, &fresh);
    if (fresh) {
        memcpy(answer->data, k->data, k->n_data);
        answer->n_data = k->n_data;
        return k->result;
    }
    memcpy(answer->data, key->data, WEIR_MIN(key->n_data, KEY_BYTES));
    answer->n_data = bytes;
    nvmlReturn_t result = call(fn, nvml->handle, peer, row, key->arguments, answer);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE) {
        answer->n_data = 0;
    }
    trim(row, answer);
    keep(k, key, result, answer);
    return result;
}

nvmlReturn_t weir_nvml_ask(struct weir_nvml *nvml, const struct weir_nvml_question *question,
                           struct weir_nvml_answer *answer)
{
    struct key key = {.n_data = question->n_data};
    nvmlReturn_t result;
    uint32_t bytes;

    answer->n_data = 0;
    while (rows[key.row].name && strcmp(rows[key.row].name, question->function) != 0) {
        key.row++;
    }
    WEIR_FAIL_IF(!rows[key.row].name, NVML_ERROR_FUNCTION_NOT_FOUND);
    WEIR_TRY(measure(&rows[key.row], question, &bytes));
    memset(answer->data, 0, sizeof answer->data);
    memcpy(key.arguments, question->arguments,
           n_arguments(rows[key.row].shape) * sizeof key.arguments[0]);
    if (key.n_data != 0) {
        memcpy(key.data, question->data, WEIR_MIN(key.n_data, KEY_BYTES));
    }
    pthread_mutex_lock(&nvml->lock);
    if (!nvml->tried) {
        load_locked(nvml);
    }
    if (nvml->library) {
        result = ask_locked(nvml, &key, question->peer, bytes, answer);
    } else {
        memcpy(answer->data, key.data, WEIR_MIN(key.n_data, KEY_BYTES));
        answer->n_data = bytes;
        result = weir_nvml_plain(nvml->device, &rows[key.row], key.arguments, answer);
        trim(&rows[key.row], answer);
    }
    pthread_mutex_unlock(&nvml->lock);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE) {
        answer->n_data = 0;
    }
    return result;
}

/* Guests get their tenant's quota as an answer, so no row has this function. */
bool weir_nvml_free_bytes(struct weir_nvml *nvml, uint64_t *ret_bytes)
{
    nvmlReturn_t (*memory_info)(nvmlDevice_t, nvmlMemory_t *) = NULL;
    nvmlMemory_t memory;

    pthread_mutex_lock(&nvml->lock);
    if (!nvml->tried) {
        load_locked(nvml);
    }
    if (nvml->library) {
        *(void **)&memory_info = dlsym(nvml->library, "nvmlDeviceGetMemoryInfo");
    }
    bool known = memory_info && memory_info(nvml->handle, &memory) == NVML_SUCCESS;
    pthread_mutex_unlock(&nvml->lock);
    if (known) {
        *ret_bytes = memory.free;
    }
    return known;
}
