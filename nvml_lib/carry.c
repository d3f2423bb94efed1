/*
 * The functions that the host answers: one exported function for each row of
 * proto/nvml/functions.def, with the prototype of the row's shape. Structures pass as void
 * pointers.
 */
#include "nvml_lib/lib.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;

static nvmlReturn_t send(nvmlDevice_t device, bool has_device, struct weir_nvml_request *request)
{
    uint32_t index = 0;
    WEIR_TRY(has_device ? weir_nvml_enter_device(device, &index) : weir_nvml_enter());
    return weir_nvml_session()->call(index, request);
}

nvmlReturn_t weir_nvml_carry(nvmlDevice_t device, bool has_device,
                             const struct weir_nvml_carry *carry)
{
    uint8_t stack[WEIR_NVML_VERSIONED_MAX];
    WEIR_FAIL_IF(carry->out_bytes > sizeof stack || carry->in_bytes > sizeof stack,
                 NVML_ERROR_INVALID_ARGUMENT);
    struct weir_nvml_request request = {.function = carry->function,
                                        .data = stack,
                                        .in_bytes = carry->in_bytes,
                                        .out_bytes = carry->out_bytes};
    memcpy(request.arguments, carry->arguments, sizeof request.arguments);
    if (carry->in_bytes) {
        memcpy(stack, carry->data, carry->in_bytes);
    }
    WEIR_TRY(send(device, has_device, &request));
    WEIR_FAIL_IF(request.ret_bytes != carry->out_bytes, NVML_ERROR_UNKNOWN);
    memcpy(carry->data, stack, carry->out_bytes);
    return NVML_SUCCESS;
}

nvmlReturn_t weir_nvml_carry_text(nvmlDevice_t device, bool has_device, const char *function,
                                  const uint32_t *first, char *text, uint32_t length)
{
    char stack[WEIR_NVML_TEXT_MAX];
    uint32_t room = length < sizeof stack ? length : (uint32_t)sizeof stack;
    struct weir_nvml_request request = {.function = function, .data = stack, .out_bytes = room};
    if (!text) {
        WEIR_TRY(weir_nvml_enter());
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    request.arguments[0] = first ? *first : room;
    request.arguments[1] = first ? room : 0;
    WEIR_TRY(send(device, has_device, &request));
    memcpy(text, stack, request.ret_bytes);
    return NVML_SUCCESS;
}

/* Output pointers for numbers: up to four of 32 bits, or two of 64. */
struct outs {
    u32 *words[4];
    u64 *wides[2];
    unsigned long *duration; /* a second wide number follows the first */
};

static nvmlReturn_t carry_numbers(const char *function, nvmlDevice_t device,
                                  const u32 arguments[WEIR_NVML_ARGUMENTS], u32 n_words,
                                  u32 n_wides, const struct outs *outs)
{
    union {
        u32 words[4];
        u64 wides[2];
    } got;
    uint32_t index;
    nvmlReturn_t result = weir_nvml_enter_device(device, &index);
    for (u32 i = 0; result == NVML_SUCCESS && i < n_words; i++) {
        result = outs->words[i] ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result != NVML_SUCCESS) {
        return result;
    }
    WEIR_FAIL_IF(n_wides && (!outs->wides[0] || (n_wides == 2 && !outs->duration)),
                 NVML_ERROR_INVALID_ARGUMENT);
    struct weir_nvml_carry carry = {
        .function = function, .data = &got, .out_bytes = n_words * 4 + n_wides * 8};
    memcpy(carry.arguments, arguments, sizeof carry.arguments);
    WEIR_TRY(weir_nvml_carry(device, true, &carry));
    for (u32 i = 0; i < n_words; i++) {
        *outs->words[i] = got.words[i];
    }
    if (n_wides) {
        *outs->wides[0] = got.wides[0];
    }
    if (n_wides == 2) {
        *outs->duration = (unsigned long)got.wides[1];
    }
    return NVML_SUCCESS;
}

/* A structure of a fixed size, output only. */
static nvmlReturn_t carry_struct(const char *function, nvmlDevice_t device, bool has_device, u32 a,
                                 u32 b, void *out, u32 bytes)
{
    struct weir_nvml_carry carry = {
        .function = function, .arguments = {a, b}, .data = out, .out_bytes = bytes};
    nvmlReturn_t result = weir_nvml_enter();
    if (result == NVML_SUCCESS && !out) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    return result == NVML_SUCCESS ? weir_nvml_carry(device, has_device, &carry) : result;
}

static u32 versioned_bytes(const void *at)
{
    u32 version;
    memcpy(&version, at, sizeof version);
    return WEIR_NVML_VERSION_BYTES(version);
}

/* A structure whose first word is its version and size. */
static nvmlReturn_t carry_versioned(const char *function, nvmlDevice_t device, bool has_device,
                                    u32 a, void *inout)
{
    WEIR_TRY(weir_nvml_enter());
    WEIR_FAIL_IF(!inout, NVML_ERROR_INVALID_ARGUMENT);
    u32 bytes = versioned_bytes(inout);
    WEIR_FAIL_IF(bytes < sizeof(u32) || bytes > WEIR_NVML_VERSIONED_MAX,
                 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    struct weir_nvml_carry carry = {.function = function,
                                    .arguments = {a},
                                    .data = inout,
                                    .in_bytes = bytes,
                                    .out_bytes = bytes};
    return weir_nvml_carry(device, has_device, &carry);
}

#define PAIR_MAX 64

static nvmlReturn_t carry_pair(const char *function, nvmlDevice_t device, void *a, void *b)
{
    uint8_t both[PAIR_MAX];
    WEIR_TRY(weir_nvml_enter());
    WEIR_FAIL_IF(!a || !b, NVML_ERROR_INVALID_ARGUMENT);
    u32 bytes = versioned_bytes(a);
    WEIR_FAIL_IF(bytes < sizeof(u32) || bytes > PAIR_MAX / 2 || versioned_bytes(b) != bytes,
                 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memcpy(both, a, bytes);
    memcpy(both + bytes, b, bytes);
    struct weir_nvml_carry carry = {
        .function = function, .data = both, .in_bytes = 2 * bytes, .out_bytes = 2 * bytes};
    WEIR_TRY(weir_nvml_carry(device, true, &carry));
    memcpy(a, both, bytes);
    memcpy(b, both + bytes, bytes);
    return NVML_SUCCESS;
}

/* A list; the number of entries is returned even if the caller's array is too small. */
static nvmlReturn_t carry_list(const char *function, nvmlDevice_t device, const u32 *first,
                               u32 *count, void *list, u32 each)
{
    uint8_t got[sizeof(u32) + WEIR_NVML_ARRAY_MAX * sizeof(u64)];
    WEIR_TRY(weir_nvml_enter());
    WEIR_FAIL_IF(!count || (*count && !list), NVML_ERROR_INVALID_ARGUMENT);
    u32 room = *count < WEIR_NVML_ARRAY_MAX ? *count : WEIR_NVML_ARRAY_MAX;
    struct weir_nvml_request request = {.function = function, .data = got, .out_bytes = sizeof got};
    request.arguments[0] = first ? *first : room;
    request.arguments[1] = first ? room : 0;
    nvmlReturn_t result = send(device, true, &request);
    if (request.ret_bytes >= sizeof *count) {
        memcpy(count, got, sizeof *count);
        if (result == NVML_SUCCESS && request.ret_bytes == sizeof *count + (size_t)*count * each &&
            *count <= room) {
            memcpy(list, got + sizeof *count, (size_t)*count * each);
        }
    }
    return result;
}

#define DEVICE nvmlDevice_t device
#define NUMBERS(name, n_words, n_wides, arguments, ...)                                            \
    return carry_numbers(#name, device, (const u32[WEIR_NVML_ARGUMENTS])arguments, n_words,        \
                         n_wides, &(struct outs){__VA_ARGS__})
#define ARGS(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* One macro for each shape: declares and defines the function of a row. */
#define FUNCTION(name, parameters)                                                                 \
    WEIR_NVML_EXPORT nvmlReturn_t name parameters;                                                 \
    nvmlReturn_t name parameters

#define SHAPE_U(name, bytes)                                                                       \
    FUNCTION(name, (DEVICE, u32 * a))                                                              \
    {                                                                                              \
        NUMBERS(name, 1, 0, ARGS(0), .words = {a});                                                \
    }
#define SHAPE_UU(name, bytes)                                                                      \
    FUNCTION(name, (DEVICE, u32 * a, u32 * b))                                                     \
    {                                                                                              \
        NUMBERS(name, 2, 0, ARGS(0), .words = {a, b});                                             \
    }
#define SHAPE_UUU(name, bytes)                                                                     \
    FUNCTION(name, (DEVICE, u32 * a, u32 * b, u32 * c))                                            \
    {                                                                                              \
        NUMBERS(name, 3, 0, ARGS(0), .words = {a, b, c});                                          \
    }
#define SHAPE_UUUU(name, bytes)                                                                    \
    FUNCTION(name, (DEVICE, u32 * a, u32 * b, u32 * c, u32 * d))                                   \
    {                                                                                              \
        NUMBERS(name, 4, 0, ARGS(0), .words = {a, b, c, d});                                       \
    }
#define SHAPE_Q(name, bytes)                                                                       \
    FUNCTION(name, (DEVICE, u64 * a))                                                              \
    {                                                                                              \
        NUMBERS(name, 0, 1, ARGS(0), .wides = {a});                                                \
    }
#define SHAPE_QL(name, bytes)                                                                      \
    FUNCTION(name, (DEVICE, u64 * a, unsigned long *b))                                            \
    {                                                                                              \
        NUMBERS(name, 0, 2, ARGS(0), .wides = {a}, .duration = b);                                 \
    }
#define SHAPE_I_U(name, bytes)                                                                     \
    FUNCTION(name, (DEVICE, u32 i, u32 * a))                                                       \
    {                                                                                              \
        NUMBERS(name, 1, 0, ARGS(i), .words = {a});                                                \
    }
#define SHAPE_II_U(name, bytes)                                                                    \
    FUNCTION(name, (DEVICE, u32 i, u32 j, u32 * a))                                                \
    {                                                                                              \
        NUMBERS(name, 1, 0, ARGS(i, j), .words = {a});                                             \
    }
#define SHAPE_II_UU(name, bytes)                                                                   \
    FUNCTION(name, (DEVICE, u32 i, u32 j, u32 * a, u32 * b))                                       \
    {                                                                                              \
        NUMBERS(name, 2, 0, ARGS(i, j), .words = {a, b});                                          \
    }
#define SHAPE_II_Q(name, bytes)                                                                    \
    FUNCTION(name, (DEVICE, u32 i, u32 j, u64 * a))                                                \
    {                                                                                              \
        NUMBERS(name, 0, 1, ARGS(i, j), .wides = {a});                                             \
    }
#define SHAPE_III_Q(name, bytes)                                                                   \
    FUNCTION(name, (DEVICE, u32 i, u32 j, u32 k, u64 * a))                                         \
    {                                                                                              \
        NUMBERS(name, 0, 1, ARGS(i, j, k), .wides = {a});                                          \
    }
#define SHAPE_D_U(name, bytes)                                                                     \
    FUNCTION(name, (DEVICE, nvmlDevice_t peer, u32 * a))                                           \
    {                                                                                              \
        u32 i;                                                                                     \
        nvmlReturn_t result = weir_nvml_enter_device(peer, &i);                                    \
        if (result != NVML_SUCCESS || device == peer) { /* NVIDIA's library tells nothing then */  \
            return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_SUPPORTED;                     \
        }                                                                                          \
        NUMBERS(name, 1, 0, ARGS(i), .words = {a});                                                \
    }
#define SHAPE_T(name, bytes)                                                                       \
    FUNCTION(name, (DEVICE, char *text, u32 length))                                               \
    {                                                                                              \
        return weir_nvml_carry_text(device, true, #name, NULL, text, length);                      \
    }
#define SHAPE_I_T(name, bytes)                                                                     \
    FUNCTION(name, (DEVICE, u32 i, char *text, u32 length))                                        \
    {                                                                                              \
        return weir_nvml_carry_text(device, true, #name, &i, text, length);                        \
    }
#define SHAPE_T0(name, bytes)                                                                      \
    FUNCTION(name, (DEVICE, char *text))                                                           \
    {                                                                                              \
        return carry_struct(#name, device, true, 0, 0, text, bytes);                               \
    }
#define SHAPE_S(name, bytes)                                                                       \
    FUNCTION(name, (DEVICE, void *out))                                                            \
    {                                                                                              \
        return carry_struct(#name, device, true, 0, 0, out, bytes);                                \
    }
#define SHAPE_I_S(name, bytes)                                                                     \
    FUNCTION(name, (DEVICE, u32 i, void *out))                                                     \
    {                                                                                              \
        return carry_struct(#name, device, true, i, 0, out, bytes);                                \
    }
#define SHAPE_II_S(name, bytes)                                                                    \
    FUNCTION(name, (DEVICE, u32 i, u32 j, void *out))                                              \
    {                                                                                              \
        return carry_struct(#name, device, true, i, j, out, bytes);                                \
    }
#define SHAPE_V(name, bytes)                                                                       \
    FUNCTION(name, (DEVICE, void *inout))                                                          \
    {                                                                                              \
        return carry_versioned(#name, device, true, 0, inout);                                     \
    }
#define SHAPE_VV(name, bytes)                                                                      \
    FUNCTION(name, (DEVICE, void *a, void *b))                                                     \
    {                                                                                              \
        return carry_pair(#name, device, a, b);                                                    \
    }
#define SHAPE_N_U(name, bytes)                                                                     \
    FUNCTION(name, (DEVICE, u32 * count, u32 * list))                                              \
    {                                                                                              \
        return carry_list(#name, device, NULL, count, list, sizeof *list);                         \
    }
#define SHAPE_I_N_U(name, bytes)                                                                   \
    FUNCTION(name, (DEVICE, u32 i, u32 * count, u32 * list))                                       \
    {                                                                                              \
        return carry_list(#name, device, &i, count, list, sizeof *list);                           \
    }
#define SHAPE_I_N_Q(name, bytes)                                                                   \
    FUNCTION(name, (DEVICE, u32 i, u32 * count, u64 * list))                                       \
    {                                                                                              \
        return carry_list(#name, device, &i, count, list, sizeof *list);                           \
    }
#define SHAPE_NU(name, bytes)                                                                      \
    FUNCTION(name, (DEVICE, u32 * list, u32 list_bytes))                                           \
    {                                                                                              \
        return carry_struct(#name, device, true, list_bytes, 0, list, list_bytes);                 \
    }
#define SHAPE_SYS_T(name, bytes)                                                                   \
    FUNCTION(name, (char *text, u32 length))                                                       \
    {                                                                                              \
        return weir_nvml_carry_text(NULL, false, #name, NULL, text, length);                       \
    }
#define SHAPE_SYS_S(name, bytes)                                                                   \
    FUNCTION(name, (void *out))                                                                    \
    {                                                                                              \
        return carry_struct(#name, NULL, false, 0, 0, out, bytes);                                 \
    }
#define SHAPE_SYS_V(name, bytes)                                                                   \
    FUNCTION(name, (void *inout))                                                                  \
    {                                                                                              \
        return carry_versioned(#name, NULL, false, 0, inout);                                      \
    }
#define SHAPE_SYS_VT(name, bytes)                                                                  \
    FUNCTION(name, (void *inout, u32 length))                                                      \
    {                                                                                              \
        return carry_versioned(#name, NULL, false, length, inout);                                 \
    }

#define WEIR_NVML_CARRY(name, shape, bytes, keep) SHAPE_##shape(name, bytes)
#include "proto/nvml/functions.def"
