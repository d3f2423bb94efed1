/*
 * Markers, by which the program describes what it does through NVTX. At the first call NVTX's
 * headers, compiled into the program, load the library that NVTX_INJECTION64_PATH names, and get
 * the functions of this file to call from then on. Facts from the NVTX 3 headers of CUDA 13.0.
 *
 * A range is two records with one number. If nobody wanted markers when it began, its end makes no
 * record.
 */
#include "base/status.h"
#include "guest_cupti/lib.h"

#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define TEXT_BYTES 1024u /* of a text in wide characters, in UTF-8; a longer one is cut */
#define DEPTH_MAX  128u  /* deeper ranges of a thread make no records; NVTX has no limit */

/* ---------------------------------------------------------------- NVTX's ABI */

enum { NVTX_ETID_CALLBACKS = 1 };
enum { NVTX_CB_MODULE_CORE = 1, NVTX_CB_MODULE_CORE2 = 5 };
enum { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_UNICODE = 2, NVTX_MESSAGE_REGISTERED = 3 };
enum {
    NVTX_PAYLOAD_UINT64 = 1,
    NVTX_PAYLOAD_INT64,
    NVTX_PAYLOAD_DOUBLE,
    NVTX_PAYLOAD_UINT32,
    NVTX_PAYLOAD_INT32,
    NVTX_PAYLOAD_FLOAT
};
enum { NVTX_COLOR_ARGB = 1 };
enum { NVTX_NO_RANGE = -2 };

struct nvtx_attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
        uint32_t u32;
        int32_t i32;
        float f32;
    } payload;
    int32_t message_type;
    const void *message;
};

typedef void (*any_fn)(void);

struct nvtx_callbacks {
    size_t struct_size;
    int (*table_of)(int module, any_fn ***ret_table, unsigned int *ret_size);
};

/* ---------------------------------------------------------------- records */

static uint32_t last_id; /* atomic */

static __thread struct {
    uint32_t n; /* may exceed DEPTH_MAX: deeper ranges are only counted */
    struct {
        const char *domain;
        uint32_t id;
    } ranges[DEPTH_MAX];
} pushed;

/* Write a character in UTF-8. @return its bytes; 0: there is no such character */
static uint32_t put_utf8(uint32_t c, char *to)
{
    uint32_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
    if (c > 0x10ffff) {
        return 0;
    }
    to[0] = (char)(first[more] | c >> (6 * more));
    for (uint32_t i = 1; i <= more; i++) {
        to[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    }
    return more + 1;
}

/* Keep a text in wide characters, which are UTF-32 on Linux. */
static const char *keep_wide(const wchar_t *text)
{
    char utf8[TEXT_BYTES];
    uint32_t n = 0;
    while (*text && n < TEXT_BYTES - 4) {
        n += put_utf8((uint32_t)*text++, &utf8[n]);
    }
    utf8[n] = 0;
    return weir_cupti_keep_name(utf8);
}

/* Records refer to the name, so it is never freed. */
static const char *name_of(const struct nvtx_attributes *at)
{
    if (at->message && at->message_type == NVTX_MESSAGE_ASCII) {
        return weir_cupti_keep_name(at->message);
    }
    if (at->message && at->message_type == NVTX_MESSAGE_UNICODE) {
        return keep_wide(at->message);
    }
    return at->message && at->message_type == NVTX_MESSAGE_REGISTERED ? at->message : "";
}

static void record_marker(uint32_t flags, uint32_t id, const char *name, const char *domain,
                          bool any_thread)
{
    CUpti_ActivityMarker2 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_MARKER);
    if (record) {
        record->flags = flags;
        record->timestamp = weir_cupti_clock_ns(CLOCK_MONOTONIC);
        record->id = id;
        record->objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
        record->objectId.processId = (uint32_t)getpid();
        record->objectId.threadId = weir_cupti_thread();
        record->name = name;
        record->domain = domain;
        record->pad = any_thread;
    }
}

static void set_payload(const struct nvtx_attributes *at, CUpti_ActivityMarkerData2 *record)
{
    double f64 = at->payload_type == NVTX_PAYLOAD_FLOAT ? (double)at->payload.f32 : at->payload.f64;
    int64_t i64 = at->payload_type == NVTX_PAYLOAD_INT32 ? at->payload.i32 : at->payload.i64;
    switch (at->payload_type) {
    case NVTX_PAYLOAD_DOUBLE:
    case NVTX_PAYLOAD_FLOAT:
        record->payloadKind = CUPTI_METRIC_VALUE_KIND_DOUBLE;
        memcpy(&record->payload, &f64, sizeof f64);
        break;
    case NVTX_PAYLOAD_INT64:
    case NVTX_PAYLOAD_INT32:
        record->payloadKind = CUPTI_METRIC_VALUE_KIND_INT64;
        memcpy(&record->payload, &i64, sizeof i64);
        break;
    default:
        record->payloadKind = CUPTI_METRIC_VALUE_KIND_UINT64;
        record->payload = at->payload_type == NVTX_PAYLOAD_UINT64   ? at->payload.u64
                          : at->payload_type == NVTX_PAYLOAD_UINT32 ? at->payload.u32
                                                                    : 0;
    }
}

static void record_data(uint32_t id, const struct nvtx_attributes *at)
{
    CUpti_ActivityMarkerData2 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_MARKER_DATA);
    if (record) {
        bool colored = at->color_type == NVTX_COLOR_ARGB;
        record->flags =
            colored ? CUPTI_ACTIVITY_FLAG_MARKER_COLOR_ARGB : CUPTI_ACTIVITY_FLAG_MARKER_COLOR_NONE;
        record->color = colored ? at->color : 0;
        record->id = id;
        record->category = at->category;
        set_payload(at, record);
    }
}

/* Record a mark or the beginning of a range. @return its number; 0: markers are not wanted */
static uint32_t begin(uint32_t flags, const char *domain, const struct nvtx_attributes *at,
                      bool any_thread)
{
    if (!at || !weir_cupti_wants(CUPTI_ACTIVITY_KIND_MARKER)) {
        return 0;
    }
    const char *name = name_of(at);
    uint32_t id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
    weir_cupti_lock();
    record_marker(flags, id, name, domain, any_thread);
    if (weir_cupti_wants(CUPTI_ACTIVITY_KIND_MARKER_DATA)) {
        record_data(id, at);
    }
    weir_cupti_unlock();
    return id;
}

static void end(uint32_t id, const char *domain, bool any_thread)
{
    if (id && weir_cupti_wants(CUPTI_ACTIVITY_KIND_MARKER)) {
        weir_cupti_lock();
        record_marker(CUPTI_ACTIVITY_FLAG_MARKER_END, id, NULL, domain, any_thread);
        weir_cupti_unlock();
    }
}

static int depth_in(const char *domain)
{
    int depth = 0;
    for (uint32_t i = 0; i < pushed.n && i < DEPTH_MAX; i++) {
        depth += pushed.ranges[i].domain == domain;
    }
    return depth;
}

/* ---------------------------------------------------------------- NVTX's functions, by domain */

static void domain_mark(const char *domain, const struct nvtx_attributes *at)
{
    (void)begin(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, domain, at, false);
}

static uint64_t domain_start(const char *domain, const struct nvtx_attributes *at)
{
    return begin(CUPTI_ACTIVITY_FLAG_MARKER_START, domain, at, true);
}

static void domain_end(const char *domain, uint64_t id)
{
    end((uint32_t)id, domain, true);
}

static int domain_push(const char *domain, const struct nvtx_attributes *at)
{
    int depth = depth_in(domain);
    if (pushed.n < DEPTH_MAX) {
        pushed.ranges[pushed.n].domain = domain;
        pushed.ranges[pushed.n].id = begin(CUPTI_ACTIVITY_FLAG_MARKER_START, domain, at, false);
    }
    pushed.n++;
    return depth;
}

/* End the thread's newest range of the domain. */
static int domain_pop(const char *domain)
{
    uint32_t at = WEIR_MIN(pushed.n, DEPTH_MAX);
    if (pushed.n > DEPTH_MAX) {
        pushed.n--;
        return NVTX_NO_RANGE;
    }
    while (at && pushed.ranges[at - 1].domain != domain) {
        at--;
    }
    if (!at) {
        return NVTX_NO_RANGE;
    }
    end(pushed.ranges[at - 1].id, domain, false);
    pushed.n--;
    memmove(&pushed.ranges[at - 1], &pushed.ranges[at],
            (pushed.n - (at - 1)) * sizeof pushed.ranges[0]);
    return depth_in(domain);
}

/* Handles of domains and registered strings are kept names, so equal names have one handle. */
static const char *create_domain(const char *name)
{
    return name ? weir_cupti_keep_name(name) : NULL;
}

static const char *create_domain_wide(const wchar_t *name)
{
    return name ? keep_wide(name) : NULL;
}

static const char *register_string(const char *domain, const char *text)
{
    (void)domain;
    return create_domain(text);
}

static const char *register_string_wide(const char *domain, const wchar_t *text)
{
    (void)domain;
    return create_domain_wide(text);
}

/* ---------------------------------------------------------------- .. and without one */

#define PLAIN(type, name)                                                                          \
    static type name##_ex(const struct nvtx_attributes *at)                                        \
    {                                                                                              \
        return domain_##name(NULL, at);                                                            \
    }                                                                                              \
    static type name##_text(const char *text)                                                      \
    {                                                                                              \
        return domain_##name(                                                                      \
            NULL, &(struct nvtx_attributes){.message_type = NVTX_MESSAGE_ASCII, .message = text}); \
    }                                                                                              \
    static type name##_wide(const wchar_t *text)                                                   \
    {                                                                                              \
        return domain_##name(NULL, &(struct nvtx_attributes){.message_type = NVTX_MESSAGE_UNICODE, \
                                                             .message = text});                    \
    }
PLAIN(void, mark)
PLAIN(uint64_t, start)
PLAIN(int, push)
#undef PLAIN

static void plain_end(uint64_t id)
{
    domain_end(NULL, id);
}

static int plain_pop(void)
{
    return domain_pop(NULL);
}

/* ---------------------------------------------------------------- taking over */

#define F(function) ((any_fn)(uintptr_t)(function))

static bool attach(const struct nvtx_callbacks *callbacks, int module, const any_fn *functions,
                   unsigned int n)
{
    any_fn **table = NULL;
    unsigned int size = 0;
    WEIR_FAIL_IF(!callbacks->table_of(module, &table, &size) || !table, false);
    for (unsigned int i = 1; i < n && i < size; i++) {
        if (functions[i] && table[i]) {
            *table[i] = functions[i];
        }
    }
    return true;
}

WEIR_CUPTI_EXPORT CUptiResult cuptiNvtxInitialize(const void *(*export_table)(uint32_t id));
WEIR_CUPTI_EXPORT CUptiResult cuptiNvtxInitialize2(const void *(*export_table)(uint32_t id));
WEIR_CUPTI_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id));

CUptiResult cuptiNvtxInitialize2(const void *(*export_table)(uint32_t id))
{
    /* Indexed by NVTX's function numbers. */
    const any_fn core[] = {
        [1] = F(mark_ex),    [2] = F(mark_text),  [3] = F(mark_wide), [4] = F(start_ex),
        [5] = F(start_text), [6] = F(start_wide), [7] = F(plain_end), [8] = F(push_ex),
        [9] = F(push_text),  [10] = F(push_wide), [11] = F(plain_pop)};
    const any_fn core2[] = {
        [1] = F(domain_mark),           [2] = F(domain_start),   [3] = F(domain_end),
        [4] = F(domain_push),           [5] = F(domain_pop),     [10] = F(register_string),
        [11] = F(register_string_wide), [12] = F(create_domain), [13] = F(create_domain_wide)};
    const struct nvtx_callbacks *callbacks =
        export_table ? export_table(NVTX_ETID_CALLBACKS) : NULL;
    WEIR_FAIL_IF(!callbacks || callbacks->struct_size < sizeof *callbacks,
                 CUPTI_ERROR_INVALID_PARAMETER);
    bool good = attach(callbacks, NVTX_CB_MODULE_CORE, core, WEIR_COUNT(core));
    (void)attach(callbacks, NVTX_CB_MODULE_CORE2, core2, WEIR_COUNT(core2));
    return good ? CUPTI_SUCCESS : CUPTI_ERROR_UNKNOWN;
}

CUptiResult cuptiNvtxInitialize(const void *(*export_table)(uint32_t id))
{
    return cuptiNvtxInitialize2(export_table); /* older versions have only the first table */
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
    return cuptiNvtxInitialize2(export_table) == CUPTI_SUCCESS;
}
