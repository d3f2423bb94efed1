/* Unix socket addresses. Private to proto/wire. */
#pragma once

#include "base/status.h"
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Make the address of a path; WEIR_ERR_TOO_BIG over 107 bytes, WEIR_ERR_INVALID if empty. */
static inline enum weir_status weir_unix_address(const char *path, struct sockaddr_un *ret_address)
{
    size_t len = strlen(path);
    WEIR_FAIL_IF(len == 0, WEIR_ERR_INVALID);
    WEIR_FAIL_IF(len >= sizeof ret_address->sun_path, WEIR_ERR_TOO_BIG);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, len);
    return WEIR_OK;
}
