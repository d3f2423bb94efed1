#include "host_backend/config/shared_page.h"

#include "base/memfd.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum weir_status weir_shared_page_map(int fd, size_t bytes, void **ret_page)
{
    struct stat info;

    WEIR_FAIL_IF(fstat(fd, &info) != 0 || info.st_size < (off_t)bytes, WEIR_ERR_INVALID);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    WEIR_FAIL_IF(page == MAP_FAILED, WEIR_ERR_NO_MEMORY);
    *ret_page = page;
    return WEIR_OK;
}

enum weir_status weir_shared_page_create(const char *name, size_t bytes, int *ret_fd,
                                         void **ret_page)
{
    int fd = weir_memfd_sealed(name, bytes);

    WEIR_FAIL_IF(fd < 0, weir_status_of_errno(errno));
    enum weir_status status = weir_shared_page_map(fd, bytes, ret_page);
    if (status != WEIR_OK) {
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return WEIR_OK;
}
