/*
 * Arrays and mipmapped arrays, and copies of what they hold (docs/design/rebuild.md).
 *
 * Session thread only.
 */
#pragma once

#include "host_backend/worker/state/object.h"
#include "proto/cuda_abi.h"
#include <stddef.h>
#include <stdint.h>

struct weir_account;
struct weir_session;

/* A level or a plane, which the driver has made with its array, has only struct weir_object. */
struct weir_host_array {
    struct weir_object o;
    bool unsaved;    /* a copy has written to it since it was last saved */
    bool on_surface; /* kernels may write to it at any time */
    uint8_t *copy;   /* of all of it, mapped; NULL: it has never been saved */
    uint64_t copy_bytes;
    int copy_file;                /* which another worker gets */
    struct weir_account *account; /* the copy is charged there as host memory; NULL: no longer */
};

/** Find the array that is destroyed with this object: an array, a level or a plane. */
static inline struct weir_host_array *weir_array_of(struct weir_object *object)
{
    while (object->owner) {
        object = object->owner;
    }
    return (struct weir_host_array *)object;
}

/** @return bytes of a texel; 0: such arrays are compressed, or have planes */
uint64_t weir_array_texel_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc);

/** @param extent  bytes of a row, rows, and slices or layers. */
typedef CUresult weir_array_visit_fn(struct weir_session *session, CUarray part,
                                     const size_t extent[3], void *user);
/** Visit an array, or all levels of a mipmapped array. @return CUDA_SUCCESS,
 * CUDA_ERROR_NOT_SUPPORTED (its texels are not plain), the driver's, what visit() returns */
CUresult weir_array_visit(struct weir_session *session, const struct weir_object *array,
                          weir_array_visit_fn *visit, void *user);

/**
 * Use a file for the copy of an array that has none.
 * @param fd  a sealed file of so many bytes; taken, also on failure.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (not such a file), CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_array_take_copy(struct weir_session *session, struct weir_host_array *array,
                              uint64_t bytes, int fd);
/** Free the copy. */
void weir_array_drop_copy(struct weir_host_array *array);
