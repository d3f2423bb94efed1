/*
 * Checks what an image is, and whether its own lengths stay inside its bytes. The driver gets no
 * length, so this comes before it reads the image.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct weir_closed_kernels;

enum weir_image_form {
    WEIR_IMAGE_PTX,
    WEIR_IMAGE_FATBIN,
    WEIR_IMAGE_ELF,
    WEIR_IMAGE_SOFT_LINKED, /* a file that softgpu's linker made */
};

/**
 * Check an image that is no bundle.
 * @return WEIR_OK, WEIR_ERR_INVALID (truncated, or wrong lengths; PTX with a NUL inside or without
 *                  one at its end)
 * @thread any
 */
enum weir_status weir_image_check(const uint8_t *data, uint64_t bytes,
                                  enum weir_image_form *ret_form) WEIR_MUST_CHECK;

/** A part of a bundle (proto/wire/bundle.h, docs/design/modules.md). */
struct weir_bundle_part {
    uint64_t offset, bytes;
};
#define WEIR_BUNDLE_PARTS_MAX 4096

/**
 * Check a bundle's header and lengths; weir_fatbin_select() checks its parts.
 * @param ret_parts  made by malloc; the caller frees it.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_bundle_check(const uint8_t *data, uint64_t bytes,
                                   struct weir_bundle_part **ret_parts,
                                   uint32_t *ret_n_parts) WEIR_MUST_CHECK;

/* Properties of the code that a driver is given. */
struct weir_image_facts {
    bool uses_printf;         /* a kernel may call printf, as far as is known */
    bool may_assert;          /* a kernel may call assert, as far as is known */
    bool has_unknown_globals; /* there are variables that global_bytes does not count */
    bool leaves_addresses; /* a kernel may leave addresses of functions or of the device's heap */
    uint64_t global_bytes; /* the device memory that the variables take */
    struct weir_closed_kernels *closed; /* kernels that call neither, if others may; NULL: none */
};

#define WEIR_UNPACK_MAX_BYTES (UINT64_C(4) << 30) /* most bytes of an unpacked image; takes 4 s */

/**
 * Check a fatbin and take out of it what a device can use.
 *
 * It keeps binary code that runs on the device, PTX if there is none, and entries of unknown kind.
 * If nothing would be left, it keeps everything, so that the driver reports the error.
 *
 * @param sm        the device's compute capability times ten; 0 keeps everything.
 * @param budget    WEIR_UNPACK_MAX_BYTES for an image: unpacked bytes are subtracted from it, and a
 *                  larger entry is refused, so that a load ends in bounded time.
 * @param ret_copy  a fatbin of what was kept, from malloc(), with WEIR_IMAGE_TAIL_BYTES of NUL
 *                  behind it; the caller frees it. NULL: everything was kept, use data.
 * @param ret_facts  about what was kept. The driver takes texts or codes of one architecture: the
 *                   ones with the most variables count. The caller frees closed.
 * @return WEIR_OK, WEIR_ERR_INVALID (a kept entry, or any entry's length, is wrong),
 *                  WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_fatbin_select(const uint8_t *data, uint64_t bytes, uint32_t sm,
                                    uint64_t *budget, uint8_t **ret_copy,
                                    struct weir_image_facts *ret_facts) WEIR_MUST_CHECK;

/* Which text of an image to find. */
struct weir_image_ptx_want {
    uint32_t sm;        /* the GPU's compute capability times ten */
    bool code_runs;     /* the driver would run binary code of the image, not only PTX */
    bool no_code;       /* return a text only if no binary code runs */
    bool any_arch;      /* accept a text of another architecture than the code that would run */
    uint64_t max_bytes; /* the longest text that is wanted */
};

/**
 * Find the PTX that the code which the driver runs was made from. The image must not be a bundle.
 *
 * @param ret_text  the PTX with a NUL, from malloc(); the caller frees it.
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  the image has no PTX, or it is unclear which one it is.
 * @return WEIR_ERR_TOO_BIG    longer than max_bytes, or cannot be unpacked.
 * @return WEIR_ERR_INVALID    a length is wrong.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_image_ptx(const uint8_t *data, uint64_t bytes,
                                const struct weir_image_ptx_want *want, char **ret_text,
                                size_t *ret_bytes) WEIR_MUST_CHECK;

typedef bool weir_image_code_fn(const uint8_t *code, uint64_t bytes, void *user);

/**
 * Is something true of all machine code of an image that a device can run?
 * @param data  an image that was checked, no bundle.
 * @param is    asked for each, unpacked.
 * @return false, too: something cannot be looked at.
 * @thread any
 */
bool weir_image_all_codes(const uint8_t *data, uint64_t bytes, uint32_t sm, weir_image_code_fn *is,
                          void *user);

typedef bool weir_image_text_fn(const char *text, size_t bytes, void *user);

/**
 * Is something true of all PTX of a fatbin that a device would take? The driver links several.
 * @param data  was checked.
 * @param is    asked for each, unpacked.
 * @return false, too: something cannot be looked at.
 * @thread any
 */
bool weir_fatbin_all_texts(const uint8_t *data, uint32_t sm, weir_image_text_fn *is, void *user);

/** Is this the beginning of a fatbin? */
bool weir_fatbin_begins(const uint8_t *data, uint64_t bytes);

/** Length of a fatbin that was checked. */
uint64_t weir_fatbin_bytes(const uint8_t *data);

/** Get the properties of an image that was checked and is no fatbin. The caller frees closed. */
struct weir_image_facts weir_image_facts(const uint8_t *data, uint64_t bytes,
                                         enum weir_image_form form);
