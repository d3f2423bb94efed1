/* The page that a tenant's workers charge together. See account_page.h. */
#include "host_backend/config/account_page.h"

#include "base/memfd.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum weir_status weir_account_page_map(int fd, struct weir_account_page **ret_page)
{
    struct stat info;
    void *page;

    if (fstat(fd, &info) != 0 || info.st_size < (off_t)sizeof(struct weir_account_page)) {
        return WEIR_ERR_INVALID;
    }
    page = mmap(NULL, sizeof(struct weir_account_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_page = page;
    return WEIR_OK;
}

enum weir_status weir_account_page_create(int *ret_fd, struct weir_account_page **ret_page)
{
    int fd = weir_memfd_sealed("weir-account", sizeof(struct weir_account_page));
    enum weir_status status;

    if (fd < 0) {
        return errno == ENOMEM ? WEIR_ERR_NO_MEMORY : WEIR_ERR_IO;
    }
    status = weir_account_page_map(fd, ret_page);
    if (status != WEIR_OK) {
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return WEIR_OK;
}

void weir_account_page_unmap(struct weir_account_page *page)
{
    if (page != NULL) {
        munmap(page, sizeof *page);
    }
}
