/* vmm.h: what the programs about virtual memory management share. */
#pragma once

#include "check_driver.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t vmm_unit; /* the granularity */

CHECK_UNUSED static CUmemAllocationProp vmm_prop(int exportable)
{
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = 0;
    if (exportable) {
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    return prop;
}

CHECK_UNUSED static int vmm_attribute(CUdevice_attribute attribute)
{
    int value = 0;

    DRV(cu.DeviceGetAttribute(&value, attribute, 0));
    return value;
}

/* driver_begin(), and a skip where the device has no virtual memory management. */
CHECK_UNUSED static void vmm_begin(const char *name)
{
    CUmemAllocationProp prop = vmm_prop(0);

    driver_begin(name);
    if (!vmm_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        check_skip("no virtual memory management");
    }
    DRV(cu.MemGetAllocationGranularity(&vmm_unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

CHECK_UNUSED static CUmemGenericAllocationHandle vmm_create(size_t bytes, int exportable)
{
    CUmemAllocationProp prop = vmm_prop(exportable);
    CUmemGenericAllocationHandle handle = 0;

    DRV(cu.MemCreate(&handle, bytes, &prop, 0));
    return handle;
}

CHECK_UNUSED static CUresult vmm_access(CUdeviceptr at, size_t bytes, int flags)
{
    CUmemAccessDesc access;

    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 0;
    access.flags = (CUmemAccess_flags)flags;
    return cu.MemSetAccess(at, bytes, &access, 1);
}

/* Map the handle and make it accessible. */
CHECK_UNUSED static void vmm_map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
    DRV(cu.MemMap(at, bytes, 0, handle, 0));
    DRV(vmm_access(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

CHECK_UNUSED static unsigned vmm_word(CUdeviceptr at)
{
    unsigned word = 0;

    DRV(cu.MemcpyDtoH_v2(&word, at, sizeof(word)));
    return word;
}

/* A descriptor through a socket, as NCCL and PyTorch pass theirs. */
CHECK_UNUSED static void vmm_send_fd(int socket_fd, int fd, const void *data, size_t bytes)
{
    char room[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {(void *)(uintptr_t)data, bytes};
    struct msghdr message;

    memset(&message, 0, sizeof(message));
    memset(room, 0, sizeof(room));
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    if (sendmsg(socket_fd, &message, 0) != (ssize_t)bytes) {
        check_die("sendmsg");
    }
}

CHECK_UNUSED static int vmm_receive_fd(int socket_fd, void *data, size_t bytes)
{
    char room[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {data, bytes};
    struct msghdr message;
    int fd = -1;

    memset(&message, 0, sizeof(message));
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    if (recvmsg(socket_fd, &message, 0) != (ssize_t)bytes) {
        return -1;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    }
    return fd;
}

/* This program again, with a socket to it as its argument. */
CHECK_UNUSED static pid_t vmm_start_other(const char *program, int *ret_socket)
{
    int pair[2];
    char number[16];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        check_die("socketpair");
    }
    snprintf(number, sizeof(number), "%d", pair[1]);
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        execl("/proc/self/exe", program, number, (char *)NULL);
        _exit(20);
    }
    close(pair[1]);
    *ret_socket = pair[0];
    return child;
}

CHECK_UNUSED static int vmm_status_of(pid_t child)
{
    int status = -1;

    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}
