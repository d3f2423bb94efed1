/*
 * Conversion between the plain structs of control.h and those of protobuf-c.
 *
 * A message has at most WEIR_CONTROL_MAX_BYTES, and unpacking allocates from an arena with a cap,
 * because two bytes of an empty sub-message become a struct of fifty bytes. So no message makes us
 * allocate more than the cap. Encoders cut texts that are too long, decoders refuse them.
 */
#include "proto/wire/control.h"
#include "base/arena.h"
#include "proto/wire/control.pb-c.h"
#include "proto/wire/control_codec.h"
#include <stdlib.h>
#include <string.h>

#define UNPACK_CAP_BYTES (4u << 20)

void weir_hello_destroy(struct weir_hello *hello)
{
    if (hello) {
        free((void *)(uintptr_t)hello->ops);
    }
    free(hello);
}

void weir_welcome_destroy(struct weir_welcome *welcome)
{
    if (!welcome) {
        return;
    }
    for (uint32_t i = 0; i < welcome->n_devices; i++) {
        free(welcome->devices[i].attributes);
        free(welcome->devices[i].facts);
    }
    free(welcome);
}

bool weir_device_fact_get(const struct weir_device *device, const char *key, uint64_t *ret_value)
{
    for (uint32_t i = 0; i < device->n_facts; i++) {
        if (strcmp(device->facts[i].key, key) == 0) {
            *ret_value = device->facts[i].value;
            return true;
        }
    }
    return false;
}

const struct weir_device_attribute *weir_device_attribute_get(const struct weir_device *device,
                                                              int32_t id)
{
    for (uint32_t i = 0; i < device->n_attributes; i++) {
        if (device->attributes[i].id == id) {
            return &device->attributes[i];
        }
    }
    return NULL;
}

void weir_text_set(char *field, size_t field_bytes, const char *text)
{
    size_t len = text ? strnlen(text, field_bytes - 1) : 0;
    memmove(field, text ? text : "", len);
    field[len] = '\0';
}

/* ---------------------------------------------------------------- encoding */

/* protobuf-c's structs are not const-correct: packing only reads. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

static ProtobufCBinaryData bytes_of(const uint8_t *bytes, size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)bytes};
}

static enum weir_status pack(const ProtobufCMessage *message, struct weir_control_bytes *ret_bytes)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    WEIR_FAIL_IF(len > WEIR_CONTROL_MAX_BYTES, WEIR_ERR_TOO_BIG);
    uint8_t *bytes = malloc(len ? len : 1);
    WEIR_FAIL_IF(!bytes, WEIR_ERR_NO_MEMORY);
    protobuf_c_message_pack(message, bytes);
    *ret_bytes = (struct weir_control_bytes){.bytes = bytes, .len = len};
    return WEIR_OK;
}

enum weir_status weir_hello_encode(const struct weir_hello *hello,
                                   struct weir_control_bytes *ret_bytes)
{
    if (hello->n_transports > WEIR_CONTROL_MAX_TRANSPORTS ||
        (hello->ops && hello->ops->n > WEIR_CONTROL_MAX_OPS)) {
        return WEIR_ERR_TOO_BIG;
    }
    char *transports[WEIR_CONTROL_MAX_TRANSPORTS];
    for (uint32_t i = 0; i < hello->n_transports; i++) {
        transports[i] = text_of(hello->transports[i]);
    }
    Weir__Control__Hello message = WEIR__CONTROL__HELLO__INIT;
    message.protocol = hello->protocol;
    message.version = text_of(hello->version);
    message.pid = hello->pid;
    message.program = text_of(hello->program);
    message.n_transports = hello->n_transports;
    message.transports = transports;
    if (hello->ops) {
        message.n_op_hashes = hello->ops->n;
        message.op_hashes = (uint32_t *)(uintptr_t)hello->ops->hash;
    }
    message.token = bytes_of(hello->token, hello->has_token ? sizeof hello->token : 0);
    message.monitor = hello->monitor;
    message.why = hello->why;
    message.memory_limit_bytes = (uint64_t *)(uintptr_t)hello->wish.memory_bytes;
    for (uint32_t i = 0; i < WEIR_CONTROL_MAX_DEVICES; i++) {
        if (hello->wish.memory_bytes[i]) {
            message.n_memory_limit_bytes = i + 1;
        }
    }
    message.sm_limit_pct = hello->wish.sm_pct;
    message.connections = hello->wish.connections;
    message.launches_on_device = hello->wish.launches_on_device;
    return pack(&message.base, ret_bytes);
}

static bool fill_attributes(struct weir_arena *arena, const struct weir_device *device,
                            Weir__Control__Device *message)
{
    size_t n = device->n_attributes;
    Weir__Control__Attribute *items = weir_arena_alloc(arena, n * sizeof *items);
    message->attributes = weir_arena_alloc(arena, n * sizeof(void *));
    WEIR_FAIL_IF(!items || !message->attributes, false);
    for (size_t i = 0; i < n; i++) {
        weir__control__attribute__init(&items[i]);
        items[i].id = device->attributes[i].id;
        items[i].result = device->attributes[i].result;
        items[i].value = device->attributes[i].value;
        message->attributes[i] = &items[i];
    }
    message->n_attributes = n;
    return true;
}

static bool fill_facts(struct weir_arena *arena, const struct weir_device *device,
                       Weir__Control__Device *message)
{
    size_t n = device->n_facts;
    Weir__Control__Fact *items = weir_arena_alloc(arena, n * sizeof *items);
    message->facts = weir_arena_alloc(arena, n * sizeof(void *));
    WEIR_FAIL_IF(!items || !message->facts, false);
    for (size_t i = 0; i < n; i++) {
        weir__control__fact__init(&items[i]);
        items[i].key = text_of(device->facts[i].key);
        items[i].value = device->facts[i].value;
        message->facts[i] = &items[i];
    }
    message->n_facts = n;
    return true;
}

static enum weir_status fill_device(struct weir_arena *arena, const struct weir_device *device,
                                    Weir__Control__Device *message)
{
    if (device->n_attributes > WEIR_CONTROL_MAX_ATTRIBUTES ||
        device->n_facts > WEIR_CONTROL_MAX_FACTS) {
        return WEIR_ERR_TOO_BIG;
    }
    weir__control__device__init(message);
    message->driver_version = device->driver_version;
    message->name = text_of(device->name);
    message->uuid = bytes_of(device->uuid, sizeof device->uuid);
    message->luid = bytes_of(device->luid, sizeof device->luid);
    message->luid_mask = device->luid_mask;
    message->pci_bus_id = text_of(device->pci_bus_id);
    message->total_memory_bytes = device->total_memory_bytes;
    message->real = device->real;
    message->stream_priority_least = device->stream_priority_least;
    message->stream_priority_greatest = device->stream_priority_greatest;
    message->granularity_bytes = device->granularity_bytes;
    bool done = fill_attributes(arena, device, message) && fill_facts(arena, device, message);
    return done ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

/* Pack every device of a welcome; messages has room for them. */
static enum weir_status fill_devices(struct weir_arena *arena, const struct weir_welcome *welcome,
                                     Weir__Control__Device messages[WEIR_CONTROL_MAX_DEVICES],
                                     Weir__Control__Device *list[WEIR_CONTROL_MAX_DEVICES])
{
    enum weir_status status =
        welcome->n_devices <= WEIR_CONTROL_MAX_DEVICES ? WEIR_OK : WEIR_ERR_TOO_BIG;
    for (uint32_t i = 0; status == WEIR_OK && i < welcome->n_devices; i++) {
        list[i] = &messages[i];
        status = fill_device(arena, &welcome->devices[i], &messages[i]);
    }
    return status;
}

enum weir_status weir_welcome_encode(const struct weir_welcome *welcome,
                                     struct weir_control_bytes *ret_bytes)
{
    Weir__Control__Welcome message = WEIR__CONTROL__WELCOME__INIT;
    Weir__Control__Device devices[WEIR_CONTROL_MAX_DEVICES];
    Weir__Control__Device *list[WEIR_CONTROL_MAX_DEVICES];
    struct weir_arena arena;
    enum weir_status status = WEIR_OK;
    weir_arena_init(&arena, UNPACK_CAP_BYTES);
    message.status = (uint32_t)welcome->status;
    message.result = welcome->result;
    message.message = text_of(welcome->message);
    if (welcome->status == WEIR_OK) {
        message.session = welcome->session;
        message.transport = text_of(welcome->transport);
        message.segment_bytes = welcome->segment_bytes;
        message.n_words = welcome->n_words;
        message.arena_bytes = welcome->arena_bytes;
        message.zmq_endpoint = text_of(welcome->zmq_endpoint);
        message.zmq_token =
            bytes_of(welcome->token, welcome->has_token ? sizeof welcome->token : 0);
        message.window_base = welcome->window_base;
        message.window_bytes = welcome->window_bytes;
        message.tenant = text_of(welcome->tenant);
        message.memory_quota_bytes = welcome->memory_quota_bytes;
        message.weight = text_of(welcome->weight);
        message.spin_ns = welcome->spin_ns;
        message.devices = list;
        message.n_devices = welcome->n_devices;
        status = fill_devices(&arena, welcome, devices, list);
    }
    WEIR_THEN(status, pack(&message.base, ret_bytes));
    weir_arena_finish(&arena);
    return status;
}

/* ---------------------------------------------------------------- decoding */

static void *arena_alloc(void *arena, size_t bytes)
{
    return weir_arena_alloc(arena, bytes);
}

static void arena_free(void *arena, void *memory)
{
    (void)arena;
    (void)memory; /* weir_arena_finish() frees everything at once */
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *descriptor,
                                struct weir_arena *arena, const uint8_t *bytes, size_t len)
{
    WEIR_FAIL_IF(len > WEIR_CONTROL_MAX_BYTES, NULL);
    ProtobufCAllocator allocator = {
        .alloc = arena_alloc, .free = arena_free, .allocator_data = arena};
    return protobuf_c_message_unpack(descriptor, &allocator, len, bytes);
}

/* Copy a text. `ok` is sticky: callers check it once per message. */
static void take_text(bool *ok, char *field, size_t field_bytes, const char *text)
{
    if (strlen(text) >= field_bytes) {
        *ok = false;
    } else {
        weir_text_set(field, field_bytes, text);
    }
}

static void take_bytes(bool *ok, uint8_t *field, size_t field_bytes, ProtobufCBinaryData bytes)
{
    if (bytes.len != field_bytes) {
        *ok = false;
    } else {
        memcpy(field, bytes.data, field_bytes);
    }
}

static bool take_ops(const Weir__Control__Hello *message, struct weir_hello *hello)
{
    if (message->n_op_hashes == 0) {
        return true;
    }
    struct weir_op_hashes *ops =
        message->n_op_hashes <= WEIR_CONTROL_MAX_OPS ? calloc(1, sizeof *ops) : NULL;
    WEIR_FAIL_IF(!ops, false);
    ops->n = (uint32_t)message->n_op_hashes;
    memcpy(ops->hash, message->op_hashes, ops->n * sizeof *ops->hash);
    hello->ops = ops;
    return true;
}

static bool take_hello(const Weir__Control__Hello *message, struct weir_hello *hello)
{
    bool ok = message->n_transports <= WEIR_CONTROL_MAX_TRANSPORTS && take_ops(message, hello);
    hello->protocol = message->protocol;
    hello->pid = message->pid;
    take_text(&ok, hello->version, sizeof hello->version, message->version);
    take_text(&ok, hello->program, sizeof hello->program, message->program);
    for (size_t i = 0; ok && i < message->n_transports; i++) {
        take_text(&ok, hello->transports[i], sizeof hello->transports[i], message->transports[i]);
        hello->n_transports++;
    }
    hello->monitor = message->monitor;
    hello->why = message->why;
    ok = ok && message->n_memory_limit_bytes <= WEIR_CONTROL_MAX_DEVICES &&
         message->sm_limit_pct < 100 && message->connections <= WEIR_CONTROL_MAX_CONNECTIONS;
    for (size_t i = 0; ok && i < message->n_memory_limit_bytes; i++) {
        hello->wish.memory_bytes[i] = message->memory_limit_bytes[i];
    }
    hello->wish.sm_pct = message->sm_limit_pct;
    hello->wish.connections = message->connections;
    hello->wish.launches_on_device = message->launches_on_device;
    hello->has_token = message->token.len != 0;
    if (hello->has_token) {
        take_bytes(&ok, hello->token, sizeof hello->token, message->token);
    }
    return ok && hello->protocol != 0;
}

enum weir_status weir_hello_decode(const uint8_t *bytes, size_t len, struct weir_hello **ret_hello)
{
    struct weir_arena arena;
    weir_arena_init(&arena, UNPACK_CAP_BYTES);
    enum weir_status status = WEIR_ERR_PEER;
    struct weir_hello *hello = calloc(1, sizeof *hello);
    if (!hello) {
        status = WEIR_ERR_NO_MEMORY;
        goto out;
    }
    ProtobufCMessage *message = unpack(&weir__control__hello__descriptor, &arena, bytes, len);
    if (message && take_hello((const Weir__Control__Hello *)(void *)message, hello)) {
        *ret_hello = hello;
        hello = NULL;
        status = WEIR_OK;
    }
out:
    weir_hello_destroy(hello);
    weir_arena_finish(&arena);
    return status;
}

/* Decode attributes and facts; false: out of memory. */
static bool take_lists(bool *ok, const Weir__Control__Device *message, struct weir_device *device)
{
    if (message->n_attributes > WEIR_CONTROL_MAX_ATTRIBUTES ||
        message->n_facts > WEIR_CONTROL_MAX_FACTS) {
        *ok = false;
        return true;
    }
    device->attributes = calloc(message->n_attributes + 1, sizeof *device->attributes);
    device->facts = calloc(message->n_facts + 1, sizeof *device->facts);
    WEIR_FAIL_IF(!device->attributes || !device->facts, false);
    for (size_t i = 0; i < message->n_attributes; i++) {
        const Weir__Control__Attribute *item = message->attributes[i];
        device->attributes[i] = (struct weir_device_attribute){
            .id = item->id, .result = item->result, .value = item->value};
    }
    for (size_t i = 0; i < message->n_facts; i++) {
        take_text(ok, device->facts[i].key, sizeof device->facts[i].key, message->facts[i]->key);
        device->facts[i].value = message->facts[i]->value;
    }
    device->n_attributes = (uint32_t)message->n_attributes;
    device->n_facts = (uint32_t)message->n_facts;
    return true;
}

static bool take_device(bool *ok, const Weir__Control__Device *message, struct weir_device *device)
{
    device->driver_version = message->driver_version;
    take_text(ok, device->name, sizeof device->name, message->name);
    take_bytes(ok, device->uuid, sizeof device->uuid, message->uuid);
    take_bytes(ok, device->luid, sizeof device->luid, message->luid);
    device->luid_mask = message->luid_mask;
    take_text(ok, device->pci_bus_id, sizeof device->pci_bus_id, message->pci_bus_id);
    device->total_memory_bytes = message->total_memory_bytes;
    device->real = message->real;
    device->stream_priority_least = message->stream_priority_least;
    device->stream_priority_greatest = message->stream_priority_greatest;
    device->granularity_bytes = message->granularity_bytes;
    return take_lists(ok, message, device);
}

static enum weir_status take_welcome(const Weir__Control__Welcome *message,
                                     struct weir_welcome *welcome)
{
    bool ok = message->status < WEIR_STATUS_COUNT;
    welcome->status = ok ? (enum weir_status)message->status : WEIR_ERR_PEER;
    welcome->result = message->result;
    take_text(&ok, welcome->message, sizeof welcome->message, message->message);
    welcome->session = message->session;
    take_text(&ok, welcome->transport, sizeof welcome->transport, message->transport);
    welcome->segment_bytes = message->segment_bytes;
    welcome->n_words = message->n_words;
    welcome->arena_bytes = message->arena_bytes;
    take_text(&ok, welcome->zmq_endpoint, sizeof welcome->zmq_endpoint, message->zmq_endpoint);
    welcome->has_token = message->zmq_token.len != 0;
    if (welcome->has_token) {
        take_bytes(&ok, welcome->token, sizeof welcome->token, message->zmq_token);
    }
    welcome->window_base = message->window_base;
    welcome->window_bytes = message->window_bytes;
    take_text(&ok, welcome->tenant, sizeof welcome->tenant, message->tenant);
    welcome->memory_quota_bytes = message->memory_quota_bytes;
    take_text(&ok, welcome->weight, sizeof welcome->weight, message->weight);
    welcome->spin_ns = message->spin_ns;
    if (welcome->status == WEIR_OK) {
        ok = ok && message->n_devices > 0 && message->n_devices <= WEIR_CONTROL_MAX_DEVICES &&
             welcome->n_words > 0 && welcome->n_words <= WEIR_SEGMENT_MAX_WORDS &&
             welcome->arena_bytes <= WEIR_SEGMENT_MAX_ARENA &&
             welcome->window_base <= UINT64_MAX - welcome->window_bytes;
        for (size_t i = 0; ok && i < message->n_devices; i++) {
            welcome->n_devices++; /* first, so that a failure also frees this device's memory */
            WEIR_FAIL_IF(!take_device(&ok, message->devices[i], &welcome->devices[i]),
                         WEIR_ERR_NO_MEMORY);
        }
    }
    return ok ? WEIR_OK : WEIR_ERR_PEER;
}

enum weir_status weir_welcome_decode(const uint8_t *bytes, size_t len,
                                     struct weir_welcome **ret_welcome)
{
    struct weir_arena arena;
    weir_arena_init(&arena, UNPACK_CAP_BYTES);
    enum weir_status status = WEIR_ERR_PEER;
    struct weir_welcome *welcome = calloc(1, sizeof *welcome);
    if (!welcome) {
        status = WEIR_ERR_NO_MEMORY;
        goto out;
    }
    ProtobufCMessage *message = unpack(&weir__control__welcome__descriptor, &arena, bytes, len);
    if (message) {
        status = take_welcome((const Weir__Control__Welcome *)(void *)message, welcome);
    }
    if (status == WEIR_OK) {
        *ret_welcome = welcome;
        welcome = NULL;
    }
out:
    weir_welcome_destroy(welcome);
    weir_arena_finish(&arena);
    return status;
}
