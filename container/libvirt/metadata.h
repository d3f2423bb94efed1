/* The <tenant/> element in a libvirt domain's metadata. Private to container/libvirt. */
#pragma once

#include "base/status.h"
#include "container/libvirt_message.h"
#include <stddef.h>

#define WEIR_METADATA_MAX_BYTES (64u << 10)

/**
 * Read an element as virDomainGetMetadata() gives it: <tenant weight='300' memory='8' unit='GiB'/>.
 *
 * Names are taken as they are; what a key and its value mean is the supervisor's to say. "unit" is
 * put behind the value of "memory". Attributes of other namespaces are left alone.
 *
 * @param text          any bytes; at most WEIR_METADATA_MAX_BYTES.
 * @param ret_element   written only on success; nothing of it is left undefined.
 * @param ret_diag      filled on WEIR_ERR_SYNTAX.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX     not well-formed, has a document type, is no "tenant", or says too
 * much.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any; libxml2 must have been initialized by one thread
 */
enum weir_status weir_metadata_parse(const char *text, size_t bytes,
                                     struct weir_libvirt_element *ret_element,
                                     struct weir_diag *ret_diag) WEIR_MUST_CHECK;
