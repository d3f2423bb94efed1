/* Reads exported descriptors, and handles those of pools. */
#include "proto/wire/export.h"
#include "guest_lib/entry.h"
#include "guest_lib/vmm.h"
#include "proto/guest_calls.h"
#include <string.h>
#include <sys/socket.h>

bool weir_export_token(int fd, uint8_t ret_token[16])
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_export_message message;
    ssize_t n = recv(fd, &message, sizeof message, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);
    if (n != (ssize_t)sizeof message ||
        memcmp(message.magic, WEIR_EXPORT_MAGIC, sizeof message.magic) != 0) {
        return false;
    }
    memcpy(ret_token, message.token, sizeof message.token);
    return true;
}

CUresult weir_export_pool(const uint8_t name[16], int *ret_fd)
{
    struct weir_op_pool_export_in in;
    memcpy(in.name, name, sizeof in.name);
    weir_mem_fd_lock();
    CUresult result = weir_call_pool_export(weir_guest_channel(), &in, NULL);
    result =
        result == CUDA_SUCCESS ? weir_channel_receive_fd(weir_guest_channel(), ret_fd) : result;
    weir_mem_fd_unlock();
    return result;
}

CUresult weir_import_pool(int fd, uint8_t ret_name[16])
{
    struct weir_op_pool_import_in in;
    struct weir_op_pool_import_out out;
    WEIR_FAIL_IF(!weir_export_token(fd, in.token), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_call_pool_import(weir_guest_channel(), &in, &out));
    memcpy(ret_name, out.name, sizeof out.name);
    return CUDA_SUCCESS;
}
