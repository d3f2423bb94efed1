/*
 * Prepares the code that the driver gets of an image, once per image and device.
 *
 * A vendor's fatbin has packed code for a dozen architectures. Only code that the device can run is
 * unpacked, checked and given to the driver. So unchecked code never reaches the driver, and a
 * library of hundreds of megabytes costs a tenth of a full check.
 *
 * Source: docs/design/modules.md
 */
#pragma once

#include "base/status.h"
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/code/images.h"

/**
 * Make an image ready to be loaded; later calls return the cached result.
 *
 * @param store      the image's store: memory kept beside the image is charged there.
 * @param image      with a reference of the caller's, which must outlast the use of *ret_code.
 * @param is_bundle  it is a bundle (proto/wire/bundle.h): *ret_code is a wrapper of version 2.
 * @param sm         the device's compute capability times ten; 0: keep all (softgpu runs PTX
 * alone).
 * @param ret_code   what a load function takes; the image's own.
 * @param ret_facts  of the code.
 * @return WEIR_OK, WEIR_ERR_INVALID (truncated, or wrong lengths), WEIR_ERR_NO_MEMORY,
 *         WEIR_ERR_QUOTA (the tenant may have no more host memory)
 * @thread any; the first caller does the work, others wait for it
 */
enum weir_status weir_image_ready(struct weir_host_image_store *store,
                                  struct weir_host_image *image, bool is_bundle, uint32_t sm,
                                  const void **ret_code,
                                  struct weir_image_facts *ret_facts) WEIR_MUST_CHECK;

/** Free the prepared code of an image. Accepts NULL. */
void weir_image_codes_destroy(struct weir_image_code *codes);
