/*
 * How workers of a tenant exchange memory, pools and events that their programs share: through the
 * supervisor's directory, by keys that cannot be guessed.
 *
 * A tenant whose programs are all in this worker does not need it.
 *
 * Source: docs/design/ipc.md
 */
#pragma once

#include "host_backend/config/link.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>

struct weir_directory;
struct weir_tenant;
struct weir_worker;

/** Make a worker's end of the directory. NULL: out of memory or descriptors. @param link borrowed
 * @thread main */
struct weir_directory *weir_directory_create(int link);
/** No thread may be asking. Accepts NULL. @thread main */
void weir_directory_destroy(struct weir_directory *directory);

/** An epoll set for the worker's ends of guests' descriptors (memory/export.c). @thread any */
int weir_directory_watch_fd(const struct weir_worker *worker);

/** Does the tenant have other workers, so that shared objects must be published? @thread any */
bool weir_directory_is_used(const struct weir_tenant *tenant);

/** A new key. @return false: no random numbers @thread any */
bool weir_directory_new_key(uint8_t ret_key[WEIR_ENTRY_KEY_BYTES]);

/**
 * A new supervisor has come. Questions that the last one has read and not answered are asked again,
 * by a second call.
 * @param ask_again  this is that call: all other questions have their answers.
 * @thread main
 */
void weir_directory_resume(struct weir_worker *worker, bool ask_again);
/**
 * Publish an entry, and wait until the supervisor has it. For memory, the supervisor takes over the
 * tenant's charge (weir_account_passed_on()).
 *
 * @param entry  kind, key, value, and for memory the rest.
 * @param fd     borrowed. Memory: the driver's descriptor; for a guest's descriptor: the other end
 *               of its socket pair; -1: none.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY (the tenant may have no more entries),
 *         CUDA_ERROR_DEVICE_UNAVAILABLE (the worker is ending)
 * @thread a session's
 */
CUresult weir_directory_publish(struct weir_tenant *tenant, const struct weir_link_entry *entry,
                                int fd);

/**
 * Look up a key, and wait for the answer.
 *
 * @param entry   kind and key are given; the rest is filled in.
 * @param ret_fd  gives the driver's descriptor of memory; -1: the entry has none.
 * @return CUDA_SUCCESS; then, for memory, weir_directory_withdraw() must follow in the end
 * @return CUDA_ERROR_INVALID_VALUE    no such key, or of another tenant.
 * @return CUDA_ERROR_OUT_OF_MEMORY    this process can open no more descriptors.
 * @return CUDA_ERROR_DEVICE_UNAVAILABLE
 * @thread a session's
 */
CUresult weir_directory_find(struct weir_tenant *tenant, struct weir_link_entry *entry,
                             int *ret_fd);

/** This worker no longer uses memory or an event that it published, or memory that it found.
 * @thread any */
void weir_directory_withdraw(struct weir_tenant *tenant, enum weir_entry_kind kind,
                             const uint8_t key[WEIR_ENTRY_KEY_BYTES]);

/** The supervisor's answer came. @param fd  taken; -1: none @thread main */
void weir_directory_answered(struct weir_worker *worker, const struct weir_link_entry *entry,
                             int fd);
/** No answer is read any more: a thread that waits or asks gets an error. @thread main */
void weir_directory_close(struct weir_worker *worker);
