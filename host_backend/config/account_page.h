/*
 * The page that a tenant's workers charge together (struct weir_account_page), in memory that the
 * supervisor makes and passes on.
 */
#ifndef WEIR_HOST_BACKEND_CONFIG_ACCOUNT_PAGE_H
#define WEIR_HOST_BACKEND_CONFIG_ACCOUNT_PAGE_H

#include "base/account.h"
#include "base/status.h"

/**
 * Make a page on which nothing is used.
 * @param ret_fd    gives a sealed memfd for weir_account_page_map() in a worker.
 * @param ret_page  gives the mapping, for weir_account_page_unmap().
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_account_page_create(int *ret_fd,
                                          struct weir_account_page **ret_page) WEIR_MUST_CHECK;
/**
 * Map the page that the supervisor made.
 * @param fd  borrowed.
 * @return WEIR_OK, WEIR_ERR_INVALID (too small), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_account_page_map(int fd, struct weir_account_page **ret_page) WEIR_MUST_CHECK;
/** Accepts NULL. @thread any; nobody charges it here any more */
void weir_account_page_unmap(struct weir_account_page *page);

#endif
