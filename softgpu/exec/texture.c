/*
 * Texture and surface objects: the registry, and the handlers that sample, query, load and store.
 *
 * An object's value is its place in a table of pointers, plus one. Kernels read the table without a
 * lock; registration and removal hold one.
 *
 * Linear filtering follows the CUDA programming guide, "Texture Fetching": weights have 8
 * fractional bits. The level of detail is rounded to choose a level. Filtering between levels and
 * anisotropy are not supported, because struct weir_exec_texture does not describe them.
 */
#include "softgpu/exec/decode.h"
#include "softgpu/exec/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS 65536u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weir_exec_texture *objects[OBJECTS]; /* atomic; written under lock */
static uint32_t first_free;                        /* a hint; guarded by lock */
static uint32_t running;                           /* atomic: number of running grids */

/* A removed texture, which a grid that was running then may still read. Guarded by the lock. */
struct retired {
    struct weir_exec_texture *texture;
    struct retired *next;
};
static struct retired *retired;

enum weir_status weir_exec_texture_register(const struct weir_exec_texture *texture,
                                            uint64_t *ret_object)
{
    struct weir_exec_texture *copy = malloc(sizeof *copy);
    WEIR_FAIL_IF(!copy, WEIR_ERR_NO_MEMORY);
    *copy = *texture;
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    pthread_mutex_lock(&lock);
    for (uint32_t k = 0; k < OBJECTS && status != WEIR_OK; k++) {
        uint32_t at = (first_free + k) % OBJECTS;
        if (!objects[at]) {
            __atomic_store_n(&objects[at], copy, __ATOMIC_RELEASE);
            first_free = at + 1;
            *ret_object = at + 1;
            status = WEIR_OK;
        }
    }
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK) {
        free(copy);
    }
    return status;
}

static void free_retired_locked(void)
{
    for (struct retired *r; (r = WEIR_POP(retired));) {
        free(r->texture);
        free(r);
    }
}

void weir_x_textures_enter(void)
{
    __atomic_fetch_add(&running, 1, __ATOMIC_SEQ_CST);
}

void weir_x_textures_leave(void)
{
    if (__atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST) == 0) {
        pthread_mutex_lock(&lock);
        /* A grid that has begun since then cannot find a removed texture. */
        if (__atomic_load_n(&running, __ATOMIC_SEQ_CST) == 0) {
            free_retired_locked();
        }
        pthread_mutex_unlock(&lock);
    }
}

enum weir_status weir_exec_texture_unregister(uint64_t object)
{
    WEIR_FAIL_IF(object == 0 || object > OBJECTS, WEIR_ERR_NOT_FOUND);
    struct retired *entry = malloc(sizeof *entry);
    WEIR_FAIL_IF(!entry, WEIR_ERR_NO_MEMORY);
    WEIR_LOCKED(&lock);
    struct weir_exec_texture *old = objects[object - 1];
    if (!old) {
        free(entry);
    } else {
        __atomic_store_n(&objects[object - 1], NULL, __ATOMIC_SEQ_CST);
        first_free = object - 1 < first_free ? (uint32_t)(object - 1) : first_free;
        *entry = (struct retired){.texture = old, .next = retired};
        retired = entry;
        if (__atomic_load_n(&running, __ATOMIC_SEQ_CST) == 0) {
            free_retired_locked();
        }
    }
    return old ? WEIR_OK : WEIR_ERR_NOT_FOUND;
}

static const struct weir_exec_texture *object_of(uint64_t value)
{
    return value == 0 || value > OBJECTS ? NULL
                                         : __atomic_load_n(&objects[value - 1], __ATOMIC_SEQ_CST);
}

static uint32_t channel_bytes(enum weir_exec_texture_format format)
{
    switch (format) {
    case WEIR_EXEC_TEX_U8:
    case WEIR_EXEC_TEX_S8:
        return 1;
    case WEIR_EXEC_TEX_U16:
    case WEIR_EXEC_TEX_S16:
    case WEIR_EXEC_TEX_F16:
        return 2;
    case WEIR_EXEC_TEX_U32:
    case WEIR_EXEC_TEX_S32:
    case WEIR_EXEC_TEX_F32:
        break;
    }
    return 4;
}

/* The state of one fetch. */
struct sampler {
    struct weir_x_warp *w;
    const struct weir_exec_texture *t;
    const struct weir_exec_texture_level *level;
    bool bad; /* the memory does not exist */
};

/* Index of a texel by address mode; -1 is the border. */
static int64_t address(const struct weir_exec_texture *t, uint32_t axis, int64_t at, uint64_t size)
{
    int64_t n = size == 0 ? 1 : (int64_t)size;
    enum weir_exec_texture_address mode = t->address[axis];
    if (!t->normalized_coords && (mode == WEIR_EXEC_TEX_WRAP || mode == WEIR_EXEC_TEX_MIRROR)) {
        mode = WEIR_EXEC_TEX_CLAMP;
    }
    switch (mode) {
    case WEIR_EXEC_TEX_WRAP:
        at %= n;
        return at < 0 ? at + n : at;
    case WEIR_EXEC_TEX_MIRROR:
        at %= 2 * n;
        at = at < 0 ? at + 2 * n : at;
        return at < n ? at : 2 * n - 1 - at;
    case WEIR_EXEC_TEX_BORDER:
        return at < 0 || at >= n ? -1 : at;
    case WEIR_EXEC_TEX_CLAMP:
        break;
    }
    return at < 0 ? 0 : at >= n ? n - 1 : at;
}

static const char *texel_pointer(struct sampler *s, int64_t x, int64_t y, int64_t z)
{
    uint32_t bytes = channel_bytes(s->t->format) * s->t->channels;
    uint64_t at = s->level->base + (uint64_t)z * s->level->slice_bytes +
                  (uint64_t)y * s->level->row_bytes + (uint64_t)x * bytes;
    const char *p = weir_x_generic(s->w, 0, at, bytes, WEIR_SOFT_READ);
    s->bad = s->bad || !p;
    return p;
}

/* Read one channel as raw bits, sign-extended. */
static int64_t raw_channel(const struct weir_exec_texture *t, const char *p, uint32_t channel)
{
    uint32_t bytes = channel_bytes(t->format);
    uint32_t v = 0;
    memcpy(&v, p + channel * bytes, bytes);
    switch (t->format) {
    case WEIR_EXEC_TEX_S8:
        return (int8_t)v;
    case WEIR_EXEC_TEX_S16:
        return (int16_t)v;
    case WEIR_EXEC_TEX_S32:
        return (int32_t)v;
    case WEIR_EXEC_TEX_U8:
    case WEIR_EXEC_TEX_U16:
    case WEIR_EXEC_TEX_U32:
    case WEIR_EXEC_TEX_F16:
    case WEIR_EXEC_TEX_F32:
        break;
    }
    return v;
}

static float from_srgb(float v)
{
    return v <= 0.04045f ? v / 12.92f : powf((v + 0.055f) / 1.055f, 2.4f);
}

static float float_channel(const struct weir_exec_texture *t, const char *p, uint32_t channel)
{
    int64_t raw = raw_channel(t, p, channel);
    switch (t->format) {
    case WEIR_EXEC_TEX_F32:
        return weir_x_as_f32((uint32_t)raw);
    case WEIR_EXEC_TEX_F16:
        return weir_x_half_to_float((uint16_t)raw);
    case WEIR_EXEC_TEX_U8:
        return t->srgb && channel < 3 ? from_srgb((float)raw / 255.0f) : (float)raw / 255.0f;
    case WEIR_EXEC_TEX_U16:
        return (float)raw / 65535.0f;
    case WEIR_EXEC_TEX_S8:
        return fmaxf((float)raw / 127.0f, -1.0f);
    case WEIR_EXEC_TEX_S16:
        return fmaxf((float)raw / 32767.0f, -1.0f);
    case WEIR_EXEC_TEX_U32:
    case WEIR_EXEC_TEX_S32:
        break;
    }
    return (float)raw;
}

/* Do fetches return floating-point numbers (filtered, normalised) or the stored integers? */
static bool gives_float(const struct weir_exec_texture *t)
{
    bool is_float = t->format == WEIR_EXEC_TEX_F16 || t->format == WEIR_EXEC_TEX_F32;
    bool is_32 = t->format == WEIR_EXEC_TEX_U32 || t->format == WEIR_EXEC_TEX_S32;
    return is_float || (!t->read_as_integer && !is_32);
}

static void texel_float(struct sampler *s, const int64_t at[3], float out[4])
{
    const char *p = NULL;
    if (at[0] >= 0 && at[1] >= 0 && at[2] >= 0) {
        p = texel_pointer(s, at[0], at[1], at[2]);
    }
    for (uint32_t c = 0; c < 4; c++) {
        out[c] = !p                   ? s->t->border[c]
                 : c < s->t->channels ? float_channel(s->t, p, c)
                                      : (c == 3 ? 1.0f : 0.0f);
    }
}

static void texel_raw(struct sampler *s, const int64_t at[3], uint32_t out[4])
{
    const char *p = NULL;
    if (at[0] >= 0 && at[1] >= 0 && at[2] >= 0) {
        p = texel_pointer(s, at[0], at[1], at[2]);
    }
    for (uint32_t c = 0; c < 4; c++) {
        out[c] = !p                   ? (uint32_t)s->t->border[c]
                 : c < s->t->channels ? (uint32_t)raw_channel(s->t, p, c)
                                      : (c == 3 ? 1 : 0);
    }
}

static int64_t to_index(float x)
{
    return x >= 0x1p40f ? INT32_MAX : x <= -0x1p40f ? INT32_MIN : x != x ? 0 : (int64_t)floorf(x);
}

/* Linear: 2^dims texels with weights of 8 fractional bits. layer: index on the next axis. */
static void sample_linear(struct sampler *s, const float x[3], uint32_t dims, int64_t layer,
                          float out[4])
{
    const uint64_t size[3] = {s->level->width, s->level->height, s->level->depth};
    int64_t base[3] = {0, 0, 0};
    float weight[3] = {0, 0, 0};
    for (uint32_t d = 0; d < dims; d++) {
        float shifted = x[d] - 0.5f;
        base[d] = to_index(shifted);
        weight[d] = floorf((shifted - floorf(shifted)) * 256.0f + 0.5f) / 256.0f;
    }
    memset(out, 0, 4 * sizeof out[0]);
    for (uint32_t corner = 0; corner < 1u << dims; corner++) {
        float factor = 1.0f;
        int64_t at[3] = {0, 0, 0};
        for (uint32_t d = 0; d < dims; d++) {
            bool up = (corner >> d & 1u) != 0;
            factor *= up ? weight[d] : 1.0f - weight[d];
            at[d] = address(s->t, d, base[d] + up, size[d]);
        }
        if (s->t->layered || s->t->cubemap) {
            at[2] = layer;
        }
        if (factor == 0.0f) {
            continue;
        }
        float texel[4];
        texel_float(s, at, texel);
        for (uint32_t c = 0; c < 4; c++) {
            out[c] += factor * texel[c];
        }
    }
}

static void nearest(const struct sampler *s, const float x[3], uint32_t dims, int64_t layer,
                    int64_t at[3])
{
    const uint64_t size[3] = {s->level->width, s->level->height, s->level->depth};
    at[0] = at[1] = at[2] = 0;
    for (uint32_t d = 0; d < dims; d++) {
        at[d] = address(s->t, d, to_index(x[d]), size[d]);
    }
    if (s->t->layered || s->t->cubemap) {
        at[2] = layer;
    }
}

/* Find the face that a direction hits, and where (x and y in 0 .. 1), by OpenGL's table. */
static int64_t cube_face(const float v[3], float ret[2])
{
    float ax = fabsf(v[0]);
    float ay = fabsf(v[1]);
    float az = fabsf(v[2]);
    int64_t face;
    float sc, tc, ma;
    if (ax >= ay && ax >= az) {
        face = v[0] >= 0 ? 0 : 1;
        sc = v[0] >= 0 ? -v[2] : v[2];
        tc = -v[1];
        ma = ax;
    } else if (ay >= az) {
        face = v[1] >= 0 ? 2 : 3;
        sc = v[0];
        tc = v[1] >= 0 ? v[2] : -v[2];
        ma = ay;
    } else {
        face = v[2] >= 0 ? 4 : 5;
        sc = v[2] >= 0 ? v[0] : -v[0];
        tc = -v[1];
        ma = az;
    }
    ret[0] = (sc / ma + 1.0f) * 0.5f;
    ret[1] = (tc / ma + 1.0f) * 0.5f;
    return face;
}

static float coordinate(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t k,
                        uint32_t lane, bool integer)
{
    uint32_t bits = weir_x_w32(w, i->refs[4 + k])[lane];
    return integer ? (float)(int32_t)bits : weir_x_as_f32(bits);
}

static uint32_t geometry_dims(uint8_t geom)
{
    return geom & 3u;
}
#define GEOM_LAYERED 0x4u
#define GEOM_CUBE    0x8u

static void store_result(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane,
                         const uint32_t value[4])
{
    for (uint32_t c = 0; c < 4; c++) {
        if (i->refs[c] != WEIR_X_NO_REF) {
            weir_x_w32(w, i->refs[c])[lane] = value[c];
        }
    }
}

/* Write the results in the instruction's type: as bits of f32, or converted to integers. */
static void float_result(const struct weir_x_inst *i, const float from[4], uint32_t out[4])
{
    for (uint32_t c = 0; c < 4; c++) {
        out[c] = i->type == WEIR_PTX_TYPE_F16 ? weir_x_half_from_float(from[c])
                                              : weir_x_bits_f32(from[c]);
    }
}

/* tld4: return one channel (sub2) of the four texels that linear filtering would use. */
static void gather(struct sampler *s, const struct weir_x_inst *i, const float x[3], int64_t layer,
                   uint32_t out[4])
{
    static const int64_t corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    for (uint32_t k = 0; k < 4; k++) {
        int64_t at[3] = {address(s->t, 0, to_index(x[0] - 0.5f) + corners[k][0], s->level->width),
                         address(s->t, 1, to_index(x[1] - 0.5f) + corners[k][1], s->level->height),
                         layer};
        float texel[4];
        uint32_t raw[4];
        if (gives_float(s->t)) {
            texel_float(s, at, texel);
            float_result(i, texel, raw);
        } else {
            texel_raw(s, at, raw);
        }
        out[k] = raw[i->sub2];
    }
}

static void sample(struct sampler *s, const struct weir_x_inst *i, float x[3], uint32_t dims,
                   int64_t layer, uint32_t out[4], bool integer)
{
    int64_t at[3];
    float result[4];
    if (i->sub != 0) {
        gather(s, i, x, layer, out);
        return;
    }
    if (!gives_float(s->t)) {
        nearest(s, x, dims, layer, at);
        texel_raw(s, at, out);
        return;
    }
    if (s->t->linear_filter && !integer) {
        sample_linear(s, x, dims, layer, result);
    } else {
        nearest(s, x, dims, layer, at);
        texel_float(s, at, result);
    }
    float_result(i, result, out);
}

static bool fetch_lane(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t l,
                       const struct weir_exec_texture *t)
{
    bool integer = i->type2 == WEIR_PTX_TYPE_S32;
    bool layered = (i->space & GEOM_LAYERED) != 0;
    uint32_t dims = geometry_dims(i->space);
    float lod = 0;
    if (i->c != WEIR_X_NO_REF) {
        uint32_t bits = weir_x_w32(w, i->c)[l];
        lod = integer ? (float)(int32_t)bits : weir_x_as_f32(bits);
    }
    int64_t level = to_index(lod + 0.5f);
    level = level < 0 ? 0 : level >= t->n_levels ? t->n_levels - 1 : level;
    struct sampler s = {.w = w, .t = t, .level = &t->levels[level]};
    int64_t layer = 0;
    if (layered) {
        layer = (int32_t)weir_x_w32(w, i->refs[4])[l];
        int64_t n = (int64_t)s.level->depth / ((i->space & GEOM_CUBE) != 0 ? 6 : 1);
        layer = layer < 0 ? 0 : layer >= n ? n - 1 : layer;
    }
    float x[3] = {0, 0, 0};
    for (uint32_t d = 0; d < ((i->space & GEOM_CUBE) != 0 ? 3 : dims); d++) {
        x[d] = coordinate(w, i, d + (layered ? 1 : 0), l, integer);
    }
    bool normalized = t->normalized_coords && !integer;
    if ((i->space & GEOM_CUBE) != 0) {
        float on_face[2];
        layer = layer * 6 + cube_face(x, on_face);
        x[0] = on_face[0];
        x[1] = on_face[1];
        x[2] = 0;
        normalized = true;
    }
    const uint64_t size[3] = {s.level->width, s.level->height, s.level->depth};
    for (uint32_t d = 0; d < dims && normalized; d++) {
        x[d] *= (float)(size[d] == 0 ? 1 : size[d]);
    }
    uint32_t out[4];
    sample(&s, i, x, dims, layer, out, integer);
    store_result(w, i, l, out);
    return !s.bad;
}

/* Fields: a: object; refs: 4 results, then coordinates; c: level; space: GEOM; sub: gather; sub2:
 * channel */
WEIR_X_HANDLER(tex)
{
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    WEIR_X_EACH_ACTIVE(w, l, {
        const struct weir_exec_texture *t = object_of(a[l]);
        WEIR_FAIL_IF(!t, weir_x_fault(w, i, 700, l, a[l], "no texture object 0x%llx",
                                      (unsigned long long)a[l]));
        WEIR_FAIL_IF(!fetch_lane(w, i, l, t),
                     weir_x_fault(w, i, 700, l, t->levels[0].base, "the texture's memory is gone"));
    });
    return i + 1;
}

/* sub: which property */
WEIR_X_HANDLER(txq)
{
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    WEIR_X_EACH_ACTIVE(w, l, {
        const struct weir_exec_texture *t = object_of(a[l]);
        WEIR_FAIL_IF(!t, weir_x_fault(w, i, 700, l, a[l], "no texture object 0x%llx",
                                      (unsigned long long)a[l]));
        uint32_t level = i->c != WEIR_X_NO_REF ? weir_x_w32(w, i->c)[l] : 0;
        const struct weir_exec_texture_level *at =
            &t->levels[level < t->n_levels ? level : t->n_levels - 1];
        const uint64_t values[] = {at->width,        at->height, at->depth, t->normalized_coords,
                                   t->linear_filter, t->n_levels};
        weir_x_w32(w, i->d)[l] = (uint32_t)values[i->sub];
    });
    return i + 1;
}

static int64_t surface_index(const struct weir_x_inst *i, int64_t at, uint64_t size, bool *outside)
{
    int64_t n = size == 0 ? 1 : (int64_t)size;
    if (at < 0 || at >= n) {
        *outside = true;
    }
    return i->sub2 == 2 ? (at < 0 ? 0 : at >= n ? n - 1 : at) : at;
}

/* Find the address of a surface access. NULL: skip it (.zero) if *ok, else a fault. */
static char *surface_pointer(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t l,
                             const struct weir_exec_texture *t, bool *ok)
{
    bool layered = (i->space & GEOM_LAYERED) != 0;
    uint32_t dims = geometry_dims(i->space);
    const struct weir_exec_texture_level *level = &t->levels[0];
    const uint64_t size[3] = {level->width, level->height, level->depth};
    uint32_t texel = channel_bytes(t->format) * t->channels;
    uint32_t bytes = i->bytes * (uint32_t)i->vec;
    bool outside = false;
    int64_t at[3] = {0, 0, 0};
    for (uint32_t d = 0; d < dims; d++) {
        int64_t x = (int32_t)weir_x_w32(w, i->refs[4 + d + (layered ? 1 : 0)])[l];
        if (d == 0 && (x % bytes != 0 || bytes > texel)) {
            outside = true;
        }
        at[d] =
            surface_index(i, d == 0 ? x / (int64_t)texel - (x < 0 ? 1 : 0) : x, size[d], &outside);
    }
    if (layered) {
        at[2] = surface_index(i, (int32_t)weir_x_w32(w, i->refs[4])[l], level->depth, &outside);
    }
    *ok = !outside || i->sub2 != 0;
    WEIR_FAIL_IF(outside && i->sub2 != 2, NULL);
    uint64_t address = level->base + (uint64_t)at[2] * level->slice_bytes +
                       (uint64_t)at[1] * level->row_bytes + (uint64_t)at[0] * texel;
    char *p = weir_x_generic(w, l, address, bytes, i->sub != 0 ? WEIR_SOFT_WRITE : WEIR_SOFT_READ);
    *ok = *ok && p;
    return p;
}

static void surface_element(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t l, char *p,
                            uint32_t e)
{
    weir_x_ref ref = i->refs[e];
    bool wide = i->bytes == 8;
    uint64_t value = 0;
    if (ref == WEIR_X_NO_REF) {
        return;
    }
    if (i->sub != 0) {
        value = wide ? weir_x_w64(w, ref)[l] : weir_x_w32(w, ref)[l];
        if (p) {
            memcpy(p + e * i->bytes, &value, i->bytes);
        }
        return;
    }
    if (p) {
        memcpy(&value, p + e * i->bytes, i->bytes);
    }
    if (wide) {
        weir_x_w64(w, ref)[l] = value;
    } else {
        weir_x_w32(w, ref)[l] = (uint32_t)value;
    }
}

/* Fields: sub: store; sub2: 0 .trap 1 .zero 2 .clamp; refs: data, then coordinates (x in bytes) */
WEIR_X_HANDLER(surface)
{
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    WEIR_X_EACH_ACTIVE(w, l, {
        const struct weir_exec_texture *t = object_of(a[l]);
        bool ok = t != NULL;
        char *p = ok ? surface_pointer(w, i, l, t, &ok) : NULL;
        WEIR_FAIL_IF(!ok,
                     weir_x_fault(w, i, 700, l, a[l], "surface access outside, or no such object"));
        for (uint32_t e = 0; e < i->vec; e++) {
            surface_element(w, i, l, p, e);
        }
    });
    return i + 1;
}

static bool geometry(uint16_t geom, uint8_t *ret)
{
    switch (geom) {
    case WEIR_PTX_MOD_GEOM_1D:
        *ret = 1;
        return true;
    case WEIR_PTX_MOD_GEOM_2D:
        *ret = 2;
        return true;
    case WEIR_PTX_MOD_GEOM_3D:
        *ret = 3;
        return true;
    case WEIR_PTX_MOD_A1D:
        *ret = 1 | GEOM_LAYERED;
        return true;
    case WEIR_PTX_MOD_A2D:
        *ret = 2 | GEOM_LAYERED;
        return true;
    case WEIR_PTX_MOD_CUBE:
        *ret = 2 | GEOM_CUBE;
        return true;
    case WEIR_PTX_MOD_ACUBE:
        *ret = 2 | GEOM_CUBE | GEOM_LAYERED;
        return true;
    default:
        return false;
    }
}

/* Decode [object, {coordinates}] or [object, coordinate]. */
static bool coordinates(struct weir_x_decoder *x, const struct weir_ptx_operand *mem,
                        struct weir_x_inst *out, weir_x_ref refs[9])
{
    WEIR_FAIL_IF(mem->kind != WEIR_PTX_OPERAND_MEM || mem->base != WEIR_PTX_BASE_REG, false);
    out->a = x->regs[mem->reg];
    if (mem->n_elems == 0) {
        return true;
    }
    const struct weir_ptx_operand *list = mem->elems;
    uint32_t n = mem->n_elems;
    if (n == 1 && list[0].kind == WEIR_PTX_OPERAND_VECTOR) {
        n = list[0].n_elems;
        list = list[0].elems;
    }
    WEIR_FAIL_IF(n > 5, false);
    for (uint32_t k = 0; k < n; k++) {
        refs[4 + k] = list[k].kind == WEIR_PTX_OPERAND_SINK
                          ? weir_x_const(x, 0, false)
                          : weir_x_source(x, &list[k], 32, x->ir->types[1]);
    }
    return true;
}

static bool data_refs(struct weir_x_decoder *x, const struct weir_ptx_operand *o, bool dest,
                      weir_x_ref refs[9], uint32_t *ret_n)
{
    const struct weir_ptx_operand *list = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->elems : o;
    uint32_t n = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->n_elems : 1;
    WEIR_FAIL_IF(n > 4, false);
    for (uint32_t k = 0; k < n; k++) {
        refs[k] =
            dest ? weir_x_dest(x, &list[k])
                 : weir_x_source(x, &list[k], weir_ptx_type_bits(x->ir->types[0]), x->ir->types[0]);
    }
    *ret_n = n;
    return true;
}

static bool decode_query(struct weir_x_decoder *x)
{
    static const uint16_t properties[] = {WEIR_PTX_MOD_WIDTH,       WEIR_PTX_MOD_HEIGHT,
                                          WEIR_PTX_MOD_DEPTH,       WEIR_PTX_MOD_NORMALIZED_COORDS,
                                          WEIR_PTX_MOD_FILTER_MODE, WEIR_PTX_MOD_NUM_MIPMAP_LEVELS};
    struct weir_x_inst out = {0};
    weir_x_ref refs[9];
    WEIR_FAIL_IF(!coordinates(x, &x->ir->operands[1], &out, refs), false);
    weir_x_ref level = x->ir->n_operands > 2
                           ? weir_x_source(x, &x->ir->operands[2], 32, WEIR_PTX_TYPE_U32)
                           : WEIR_X_NO_REF;
    for (uint8_t k = 0; k < 6; k++) {
        if (weir_ptx_inst_has(x->ir, properties[k])) {
            struct weir_x_inst *i = weir_x_emit(x);
            i->fn = weir_x_exec_txq;
            i->a = out.a;
            i->d = weir_x_dest(x, &x->ir->operands[0]);
            i->c = level;
            i->sub = k;
            return true;
        }
    }
    return false;
}

static uint8_t component(const struct weir_ptx_inst *ir)
{
    return weir_ptx_inst_has(ir, WEIR_PTX_MOD_G)   ? 1
           : weir_ptx_inst_has(ir, WEIR_PTX_MOD_B) ? 2
           : weir_ptx_inst_has(ir, WEIR_PTX_MOD_A) ? 3
                                                   : 0;
}

bool weir_x_decode_texture(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    if (ir->op == WEIR_PTX_OP_TXQ || ir->op == WEIR_PTX_OP_SUQ) {
        return decode_query(x);
    }
    bool store = ir->op == WEIR_PTX_OP_SUST;
    bool is_surface = store || ir->op == WEIR_PTX_OP_SULD;
    bool known = is_surface || ir->op == WEIR_PTX_OP_TEX || ir->op == WEIR_PTX_OP_TLD4;
    struct weir_x_inst out = {0};
    weir_x_ref *refs = weir_x_decode_alloc(x, 9 * sizeof *refs);
    uint32_t n = 0;
    if (!known || !refs || !geometry(ir->geom, &out.space) ||
        (is_surface && weir_ptx_inst_has(ir, WEIR_PTX_MOD_P)) ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_GRAD) || ir->operands[0].reg2 != WEIR_PTX_NONE) {
        return false;
    }
    for (uint32_t k = 0; k < 9; k++) {
        refs[k] = WEIR_X_NO_REF;
    }
    if (!data_refs(x, &ir->operands[store ? 1 : 0], !store, refs, &n) ||
        !coordinates(x, &ir->operands[store ? 0 : 1], &out, refs)) {
        return false;
    }
    bool levelled = weir_ptx_inst_has(ir, WEIR_PTX_MOD_LEVEL);
    weir_x_ref level = levelled && ir->n_operands > 2
                           ? weir_x_source(x, &ir->operands[2], 32, ir->types[1])
                           : WEIR_X_NO_REF;
    struct weir_x_inst *i = weir_x_emit(x);
    i->a = out.a;
    i->space = out.space;
    i->refs = refs;
    i->c = level;
    i->type = ir->types[0];
    i->type2 = ir->n_types > 1 ? ir->types[1] : WEIR_PTX_TYPE_F32;
    i->vec = (uint8_t)n;
    i->fn = is_surface ? weir_x_exec_surface : weir_x_exec_tex;
    i->sub = store || ir->op == WEIR_PTX_OP_TLD4;
    i->sub2 = component(ir);
    if (is_surface) {
        i->bytes = (uint8_t)weir_ptx_type_bytes(ir->types[0]);
        i->sub2 = weir_ptx_inst_has(ir, WEIR_PTX_MOD_ZERO)    ? 1
                  : weir_ptx_inst_has(ir, WEIR_PTX_MOD_CLAMP) ? 2
                                                              : 0;
    }
    return levelled || is_surface || ir->n_operands == 2;
}
