/*
 * The driver's functions for device code: vprintf, __assertfail, malloc, free.
 *
 * vprintf formats its text here, on the processor, lane by lane. The arguments lie in a buffer as
 * nvcc writes it: each is aligned to its size, floats are doubles, and small integers are ints.
 *
 * The device heap is one region per device. The first malloc reserves it, with the size that its
 * launch allows, and it stays until the device is destroyed, because pointers outlive grids. Blocks
 * are powers of two, each with a header before it; free blocks are in lists by size.
 */
#include "softgpu/exec/internal.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PRINT_MAX    65536u
#define STRING_MAX   16384u
#define NUMBER_MAX   9999 /* largest width or precision */
#define HEAP_CLASSES 48
#define HEAP_LIVE    0x57454952u
#define HEAP_FREE    0x46524545u

struct heap_block {
    uint32_t state; /* HEAP_LIVE or HEAP_FREE: what free() checks */
    uint32_t class; /* log2 of the block's size, header included */
    struct heap_block *next;
};

struct weir_x_heap {
    struct weir_x_heap *next;
    char *base;
    uint64_t bytes;
    uint64_t used;
    struct heap_block *spare[HEAP_CLASSES];
};

/* Read the caller's argument k of a call. */
static uint64_t argument(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t k,
                         uint32_t lane)
{
    const struct weir_x_call *call = i->ext;
    if (k >= call->n_args) {
        return 0;
    }
    const struct weir_x_arg *arg = &call->args[k];
    uint64_t value = 0;
    if (arg->from_reg) {
        return arg->wide ? weir_x_w64(w, arg->from)[lane] : weir_x_w32(w, arg->from)[lane];
    }
    const char *from = w->local + lane * w->local_bytes + w->frame->local_base + arg->from;
    memcpy(&value, from, WEIR_MIN(arg->bytes, 8));
    return value;
}

static void give_result(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane,
                        uint64_t value)
{
    const struct weir_x_call *call = i->ext;
    if (call->n_results == 0) {
        return;
    }
    const struct weir_x_arg *result = &call->results[0];
    if (!result->to_reg) {
        memcpy(w->local + lane * w->local_bytes + w->frame->local_base + result->to, &value,
               WEIR_MIN(result->bytes, 8));
    } else if (result->wide) {
        weir_x_w64(w, result->to)[lane] = value;
    } else {
        weir_x_w32(w, result->to)[lane] = (uint32_t)value;
    }
}

/* Read a device string, cut at max bytes; false if memory ends before the string. */
static bool read_string(struct weir_x_warp *w, uint32_t lane, uint64_t address, char *text,
                        uint32_t max)
{
    for (uint32_t n = 0; n < max; n++) {
        const char *p = weir_x_generic(w, lane, address + n, 1, WEIR_SOFT_READ);
        WEIR_FAIL_IF(!p, false);
        text[n] = __atomic_load_n(p, __ATOMIC_RELAXED);
        if (text[n] == '\0') {
            return true;
        }
    }
    text[max - 1] = '\0';
    return true;
}

struct print {
    struct weir_x_warp *w;
    uint32_t lane;
    uint64_t args;
    uint32_t at;
    char *out;
    size_t n;
    bool bad;
};

static uint64_t next_arg(struct print *p, uint32_t bytes)
{
    p->at = (p->at + bytes - 1) & ~(bytes - 1);
    uint64_t value = 0;
    const void *from = weir_x_generic(p->w, p->lane, p->args + p->at, bytes, WEIR_SOFT_READ);
    p->at += bytes;
    if (!from) {
        p->bad = true;
        return 0;
    }
    memcpy(&value, from, bytes);
    return value;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static void put(struct print *p, const char *spec, ...) WEIR_PRINTF(2, 3);
static void put(struct print *p, const char *spec, ...)
{
    va_list args;
    va_start(args, spec);
    int n = vsnprintf(p->out + p->n, PRINT_MAX - p->n, spec, args);
    va_end(args);
    if (n > 0) {
        p->n += (size_t)n;
        p->n = p->n < PRINT_MAX ? p->n : PRINT_MAX - 1;
    }
}

/* Print one conversion; spec ends with the conversion's letter. @param length size in bytes, from
 * hh, h, l, ll or z. */
static void convert(struct print *p, const char *spec, char letter, uint32_t length)
{
    char text[STRING_MAX];
    uint64_t bits;
    double d;
    switch (letter) {
    case 'd':
    case 'i':
        bits = next_arg(p, length == 8 ? 8 : 4);
        put(p, spec,
            length == 8   ? (long long)bits
            : length == 1 ? (long long)(signed char)bits
            : length == 2 ? (long long)(short)bits
                          : (long long)(int)bits);
        break;
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        bits = next_arg(p, length == 8 ? 8 : 4);
        bits &= length == 8 ? UINT64_MAX : (1ull << (length * 8)) - 1;
        put(p, spec, (unsigned long long)bits);
        break;
    case 'c':
        put(p, spec, (int)next_arg(p, 4));
        break;
    case 'p':
        put(p, spec, (void *)(uintptr_t)next_arg(p, 8)); /* NOLINT: only printed */
        break;
    case 's':
        bits = next_arg(p, 8);
        if (bits == 0) {
            put(p, spec, "(null)");
        } else if (read_string(p->w, p->lane, bits, text, sizeof text)) {
            put(p, spec, text);
        } else {
            p->bad = true;
        }
        break;
    default: /* e f g a */
        bits = next_arg(p, 8);
        memcpy(&d, &bits, 8);
        put(p, spec, d);
        break;
    }
}

#pragma GCC diagnostic pop

static uint32_t length_of(const char **f)
{
    uint32_t length = 4;
    for (; **f != '\0' && strchr("hlLqjzt", **f); (*f)++) {
        length = **f == 'h' ? (length == 2 ? 1 : 2) : 8;
    }
    return length;
}

/* Replace a star by its value. A negative precision counts as none. */
static size_t copy_star(struct print *p, char *spec, size_t n, size_t room)
{
    int value = (int)next_arg(p, 4);
    value = value > NUMBER_MAX ? NUMBER_MAX : value < -NUMBER_MAX ? -NUMBER_MAX : value;
    if (spec[n - 1] == '.' && value < 0) {
        return n - 1;
    }
    return n + (size_t)snprintf(spec + n, room - n, "%d", value);
}

/*
 * Copy flags, width and precision to spec and replace stars by numbers. Numbers have at most four
 * digits, which bounds the output. Returns the rest of the format.
 */
static const char *copy_spec(struct print *p, const char *f, char *spec, size_t room)
{
    size_t n = 0;
    uint32_t digits = 0;
    spec[n++] = '%';
    while (*f != '\0' && strchr("-+ #0123456789.*", *f) && n < room - 24) {
        if (*f == '*') {
            n = copy_star(p, spec, n, room);
        } else if (digits < 4 || !isdigit((unsigned char)*f)) {
            spec[n++] = *f;
        }
        digits = isdigit((unsigned char)*f) ? digits + 1 : 0;
        f++;
    }
    spec[n] = '\0';
    return f;
}

static void format_all(struct print *p, const char *f)
{
    while (*f != '\0' && p->n < PRINT_MAX - 1) {
        if (*f != '%') {
            p->out[p->n++] = *f++;
            continue;
        }
        f++;
        if (*f == '%') {
            p->out[p->n++] = *f++;
            continue;
        }
        char spec[96];
        f = copy_spec(p, f, spec, sizeof spec);
        uint32_t length = length_of(&f);
        char letter = *f;
        if (letter == '\0' || !strchr("diuxXocpsfFeEgGaA", letter)) {
            put(p, "%s", spec);
            continue;
        }
        f++;
        size_t n = strlen(spec);
        if (strchr("diuxXo", letter)) {
            spec[n++] = 'l';
            spec[n++] = 'l';
        }
        spec[n++] = letter;
        spec[n] = '\0';
        convert(p, spec, letter, length);
    }
}

WEIR_X_HANDLER(vprintf)
{
    const struct weir_exec_launch *launch = w->block->grid->launch;
    char *out = malloc(PRINT_MAX);
    char *format = malloc(STRING_MAX);
    const struct weir_x_inst *next = i + 1;
    if (!out || !format) {
        next = weir_x_fault(w, i, 719, (uint32_t)__builtin_ctz(w->mask), 0, "no memory for printf");
        goto done;
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        struct print p = {.w = w, .lane = l, .args = argument(w, i, 1, l), .out = out};
        uint64_t address = argument(w, i, 0, l);
        if (!read_string(w, l, address, format, STRING_MAX)) {
            next = weir_x_fault(w, i, 700, l, address, "printf's format is not readable");
            goto done;
        }
        format_all(&p, format);
        if (p.bad) {
            next = weir_x_fault(w, i, 700, l, p.args, "printf's arguments are not readable");
            goto done;
        }
        if (launch->print) {
            launch->print(launch->print_user, out, p.n);
        }
        give_result(w, i, l, p.at);
    });
done:
    free(out);
    free(format);
    return next;
}

/* Arguments: message, file, line, function, size of a character. */
WEIR_X_HANDLER(assertfail)
{
    const struct weir_exec_launch *launch = w->block->grid->launch;
    char message[512];
    char file[256];
    char function[256];
    uint32_t first = (uint32_t)__builtin_ctz(w->mask);
    const uint32_t *block = w->block->index;
    WEIR_X_EACH_ACTIVE(w, l, {
        if (!read_string(w, l, argument(w, i, 0, l), message, sizeof message) ||
            !read_string(w, l, argument(w, i, 1, l), file, sizeof file) ||
            !read_string(w, l, argument(w, i, 3, l), function, sizeof function)) {
            return weir_x_fault(w, i, 700, l, argument(w, i, 0, l), "assert text is not readable");
        }
        char text[1400];
        int n =
            snprintf(text, sizeof text,
                     "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                     file, (uint32_t)argument(w, i, 2, l), function, block[0], block[1], block[2],
                     w->specials[WEIR_X_TID_X][l], w->specials[WEIR_X_TID_Y][l],
                     w->specials[WEIR_X_TID_Z][l], message);
        if (launch->print && n > 0) {
            launch->print(launch->print_user, text, (size_t)n);
        }
    });
    return weir_x_fault(w, i, 710, first, 0, "assertion failed: %.120s", message);
}

static struct weir_x_heap *heap_create(uint64_t bytes)
{
    struct weir_x_heap *heap = calloc(1, sizeof *heap);
    WEIR_FAIL_IF(!heap, NULL);
    bytes = (bytes + 4095) & ~4095ull;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(heap);
        return NULL;
    }
    heap->base = base;
    heap->bytes = bytes;
    if (weir_soft_memory_add((uintptr_t)base, bytes, WEIR_SOFT_READ | WEIR_SOFT_WRITE) != WEIR_OK) {
        munmap(base, bytes);
        free(heap);
        return NULL;
    }
    return heap;
}

/* Is this a live heap block? Kernels can overwrite headers, so each field is checked first. */
static bool heap_holds(const struct weir_x_heap *heap, uint64_t block, uint32_t class)
{
    uint64_t offset = block - (uintptr_t)heap->base;
    return class >= 5 && class < HEAP_CLASSES && block % 16 == 0 && offset < heap->used &&
           1ull << class <= heap->used - offset;
}

static void *heap_take(struct weir_x_heap *heap, uint32_t class)
{
    struct heap_block *block = heap->spare[class];
    if (block && heap_holds(heap, (uintptr_t)block, class)) {
        heap->spare[class] = block->next;
    } else if (heap->used + (1ull << class) <= heap->bytes) {
        block = (struct heap_block *)(void *)(heap->base + heap->used);
        heap->used += 1ull << class;
    } else {
        return NULL;
    }
    block->state = HEAP_LIVE;
    block->class = class;
    return block + 1;
}

static void *heap_alloc(struct weir_exec_device *device, uint64_t limit, uint64_t bytes)
{
    WEIR_FAIL_IF(bytes == 0 || bytes > limit, NULL);
    bytes += sizeof(struct heap_block);
    uint32_t class = bytes <= 32 ? 5 : 64u - (uint32_t)__builtin_clzll(bytes - 1);
    void *p = NULL;
    WEIR_LOCKED(&device->heap_lock);
    if (!device->heaps || device->heaps->bytes < limit) {
        struct weir_x_heap *heap = heap_create(limit);
        if (heap) {
            WEIR_PUSH(device->heaps, heap);
        }
    }
    if (device->heaps && class < HEAP_CLASSES) {
        p = heap_take(device->heaps, class);
    }
    return p;
}

static bool heap_free(struct weir_exec_device *device, uint64_t address)
{
    bool ok = false;
    WEIR_LOCKED(&device->heap_lock);
    for (struct weir_x_heap *heap = device->heaps; heap && !ok; heap = heap->next) {
        uint64_t at = address - sizeof(struct heap_block);
        if (!heap_holds(heap, at, 5)) {
            continue;
        }
        struct heap_block *block = (struct heap_block *)(uintptr_t)at;
        uint32_t class = __atomic_load_n(&block->class, __ATOMIC_RELAXED);
        if (block->state == HEAP_LIVE && heap_holds(heap, at, class)) {
            block->state = HEAP_FREE;
            WEIR_PUSH(heap->spare[class], block);
            ok = true;
        }
    }
    return ok;
}

void weir_x_heap_destroy(struct weir_exec_device *device)
{
    for (struct weir_x_heap *heap; (heap = WEIR_POP(device->heaps));) {
        if (weir_soft_memory_remove((uintptr_t)heap->base) == WEIR_OK) {
            munmap(heap->base, heap->bytes);
        }
        free(heap);
    }
}

WEIR_X_HANDLER(malloc)
{
    struct weir_x_grid *grid = w->block->grid;
    WEIR_X_EACH_ACTIVE(w, l, {
        void *p = heap_alloc(grid->device, grid->launch->heap_bytes, argument(w, i, 0, l));
        give_result(w, i, l, (uintptr_t)p);
    });
    return i + 1;
}

WEIR_X_HANDLER(free)
{
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t address = argument(w, i, 0, l);
        WEIR_FAIL_IF(
            address != 0 && !heap_free(w->block->grid->device, address),
            weir_x_fault(w, i, 719, l, address, "free of a pointer that malloc did not give"));
    });
    return i + 1;
}
