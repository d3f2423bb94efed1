/*
 * A cache of files with content as key: workers share what they have built from a text. The file of
 * learned durations lies beside it (gate/process/times.c).
 *
 * A file is a header (magic, version, key, length, XXH3-128) and the payload, written under another
 * name and then renamed, so that a reader sees all of it or none. No content is trusted: a file
 * whose header, length or checksum is wrong is removed. Internally locked; several processes may
 * use one folder.
 */
#pragma once

#include "base/hash.h"
#include "base/status.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct weir_file_cache {
    char dir[256];        /* "": none */
    const char *suffix;   /* suffix of the files' names */
    uint64_t limit_bytes; /* limit of all files with that suffix together */
    pthread_mutex_t lock; /* serializes writers */
};

/**
 * Find the folder that weir_file_cache_init() would use.
 *
 * @param dir      as of weir_file_cache_init().
 * @param ret_dir  "": none.
 * @thread any
 */
void weir_file_cache_find(const char *dir, char *ret_dir, size_t bytes);

/**
 * Make the folder, and give it with the files in it to another user. Only root can do that.
 *
 * A folder of root's that has anything but files of caches is left alone: else the user would own
 * more than a cache. A folder that the user already owns stays unchanged.
 *
 * @return whether the folder is that user's now
 * @thread any
 */
bool weir_file_cache_give(const char *dir, uid_t uid, gid_t gid) WEIR_MUST_CHECK;

/**
 * Why can a user's processes not keep files in the folder? Makes nothing. What is above the folder
 * is looked at as this process sees it.
 *
 * @param dir  as weir_file_cache_find() gives it, not "".
 * @param uid  whose the folder is, or is to be by weir_file_cache_give().
 * @return for people; NULL: they can, as far as can be told
 * @thread any
 */
const char *weir_file_cache_fault(const char *dir, uid_t uid);

/**
 * Open a file of this process's user beside the folder, at the folder's path and a suffix, where
 * whom the folder was given to (weir_file_cache_give()) cannot write. It is made if need be.
 *
 * @param dir  as of weir_file_cache_init().
 * @return for reading and writing, locked against another process that opens it so; -1: there is to
 *         be no cache, or the log says what is wrong
 * @thread any
 */
int weir_file_cache_open_beside(const char *dir, const char *suffix);

/**
 * Find and make the folder.
 *
 * @param dir  "": $XDG_CACHE_HOME/weir, /var/cache/weir for root, $HOME/.cache/weir; "none": no
 *             cache. A folder that others may write to is not used (a warning says so).
 * @param limit_bytes  of all files with this suffix.
 * @param suffix       of WEIR_FILE_CACHE_SUFFIX_BYTES; borrowed until finish.
 * @thread any
 */
void weir_file_cache_init(struct weir_file_cache *cache, const char *dir, uint64_t limit_bytes,
                          const char *suffix);
#define WEIR_FILE_CACHE_SUFFIX_BYTES 6u /* length without the NUL */
void weir_file_cache_finish(struct weir_file_cache *cache);

/**
 * Read a payload.
 *
 * @param ret_bytes  made by malloc; the caller frees it.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (also: damaged, and now removed), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_file_cache_get(struct weir_file_cache *cache, const struct weir_hash *key,
                                     uint8_t **ret_bytes, size_t *ret_n_bytes) WEIR_MUST_CHECK;

/**
 * Store a payload; the least recently used files are removed to make room.
 * @return WEIR_OK, WEIR_ERR_TOO_BIG (larger than the limit), WEIR_ERR_UNSUPPORTED (no cache),
 *         WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_file_cache_put(struct weir_file_cache *cache, const struct weir_hash *key,
                                     const uint8_t *bytes, size_t n_bytes) WEIR_MUST_CHECK;
