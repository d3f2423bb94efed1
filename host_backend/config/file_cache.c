#include "host_backend/config/file_cache.h"

#include "base/fd.h"
#include "base/grow.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAGIC     "WEIRFORM"
#define FILE_VERSION   1u
#define FILE_MAX_BYTES (UINT64_C(1) << 30)
#define NAME_BYTES     (2 * WEIR_HASH_BYTES + WEIR_FILE_CACHE_SUFFIX_BYTES + 1)
#define STALE_S        3600 /* the writer of an unrenamed file this old has ended */

struct file_header {
    char magic[8];
    uint32_t version;
    uint32_t zero;
    struct weir_hash key;
    uint64_t bytes;
    struct weir_hash hash; /* hash of the payload */
};
_Static_assert(sizeof(struct file_header) == 56, "written to disk");

/* ---------------------------------------------------------------- the folder */

static void default_dir(char *dir, size_t bytes)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (xdg && xdg[0] == '/') {
        snprintf(dir, bytes, "%s/weir", xdg);
    } else if (geteuid() == 0) {
        snprintf(dir, bytes, "/var/cache/weir");
    } else if (home && home[0] == '/') {
        snprintf(dir, bytes, "%s/.cache/weir", home);
    } else {
        dir[0] = 0;
    }
}

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0755);
        *slash = '/';
    }
}

static bool make_dirs(const char *dir)
{
    char path[sizeof((struct weir_file_cache *)0)->dir];

    snprintf(path, sizeof path, "%s", dir);
    make_parents(path);
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

void weir_file_cache_find(const char *dir, char *ret_dir, size_t bytes)
{
    if (strcmp(dir, "none") == 0) {
        ret_dir[0] = 0;
    } else if (dir[0] != 0) {
        snprintf(ret_dir, bytes, "%s", dir);
    } else {
        default_dir(ret_dir, bytes);
    }
}

/* Is this a file of some cache, or a temporary one of a worker that was killed? */
static bool is_of_a_cache(const char *name)
{
    return (strlen(name) == NAME_BYTES - 1 &&
            strspn(name, "0123456789abcdef") == 2 * (size_t)WEIR_HASH_BYTES) ||
           strncmp(name, "tmp.", 4) == 0 || strncmp(name, "ptxas.", 6) == 0;
}

/* Give the files to another user; with give = false only check that they all may be given. */
static bool for_each_file(int dir, bool give, uid_t uid, gid_t gid)
{
    int copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;
    bool good = entries != NULL;

    if (!entries) {
        weir_fd_close(copy);
        return false;
    }
    rewinddir(entries);
    while (good && (entry = readdir(entries))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        good = give ? fchownat(dir, entry->d_name, uid, gid, AT_SYMLINK_NOFOLLOW) == 0
                    : is_of_a_cache(entry->d_name);
    }
    closedir(entries);
    return good;
}

/* Give the folder to the user. While only root owns it, nobody else has put anything there. */
static bool give_folder(int dir, uid_t uid, gid_t gid)
{
    struct stat info;

    WEIR_FAIL_IF(fstat(dir, &info) != 0 || (info.st_mode & 022) != 0, false);
    if (info.st_uid == uid) {
        return true;
    }
    return info.st_uid == geteuid() && for_each_file(dir, false, uid, gid) &&
           for_each_file(dir, true, uid, gid) && fchown(dir, uid, gid) == 0;
}

/* Could the folder be made? */
static const char *parent_fault(const char *dir)
{
    char path[sizeof((struct weir_file_cache *)0)->dir];
    char *slash;

    snprintf(path, sizeof path, "%s", dir);
    while ((slash = strrchr(path, '/')) && slash != path) {
        *slash = 0;
        if (access(path, F_OK) == 0 || errno != ENOENT) {
            break;
        }
    }
    /* With "/." the path of a file fails with ENOTDIR. */
    snprintf(path + strlen(path), sizeof path - strlen(path), "/.");
    return access(path, W_OK | X_OK) == 0 ? NULL : strerror(errno);
}

const char *weir_file_cache_fault(const char *dir, uid_t uid)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const char *fault = NULL;
    struct stat info;

    if (fd < 0) {
        return errno == ENOENT ? parent_fault(dir) : strerror(errno);
    }
    if (fstat(fd, &info) != 0 || (info.st_uid != uid && info.st_uid != geteuid())) {
        fault = "it belongs to a user who is neither the host's nor the workers'";
    } else if (info.st_mode & 022) {
        fault = "others may write to it";
    } else if (info.st_uid != uid && !for_each_file(fd, false, uid, 0)) {
        fault = "it is the host's, and has other files than those of a cache";
    } else if (faccessat(fd, ".", W_OK | X_OK, 0) != 0) {
        fault = strerror(errno);
    }
    close(fd);
    return fault;
}

bool weir_file_cache_give(const char *dir, uid_t uid, gid_t gid)
{
    bool given = false;

    WEIR_FAIL_IF(!make_dirs(dir), false);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        given = give_folder(fd, uid, gid);
        close(fd);
    }
    return given;
}

/* Does the file belong to this user, and has it no second link, which could have another use? */
static bool is_ours_alone(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
           info.st_nlink == 1 && (info.st_mode & 077) == 0;
}

int weir_file_cache_open_beside(const char *dir, const char *suffix)
{
    char found[sizeof((struct weir_file_cache *)0)->dir], path[sizeof found + 32];

    weir_file_cache_find(dir, found, sizeof found);
    size_t n = strlen(found);
    while (n > 1 && found[n - 1] == '/') {
        found[--n] = 0;
    }
    if (n < 2) {
        return -1;
    }
    snprintf(path, sizeof path, "%s%s", found, suffix);
    make_parents(path);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0) {
        weir_log_warn("cache: cannot open it path=%s why=\"%s\"", path, strerror(errno));
        return -1;
    }
    if (!is_ours_alone(fd)) {
        weir_log_warn("cache: not a file that only we may use: remove it path=%s", path);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        weir_log_warn("cache: another host has it, so nothing is kept there path=%s", path);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

void weir_file_cache_init(struct weir_file_cache *cache, const char *dir, uint64_t limit_bytes,
                          const char *suffix)
{
    struct stat info;

    *cache = (struct weir_file_cache){.limit_bytes = limit_bytes, .suffix = suffix};
    pthread_mutex_init(&cache->lock, NULL);
    weir_file_cache_find(dir, cache->dir, sizeof cache->dir);
    if (cache->dir[0] == 0) {
        return;
    }
    if (!make_dirs(cache->dir) || stat(cache->dir, &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
        weir_log_warn("cache: none, not a folder that only we may write to dir=%s", cache->dir);
        cache->dir[0] = 0;
    }
}

void weir_file_cache_finish(struct weir_file_cache *cache)
{
    pthread_mutex_destroy(&cache->lock);
    cache->dir[0] = 0;
}

static void file_name(const struct weir_file_cache *cache, const struct weir_hash *key,
                      char name[NAME_BYTES])
{
    for (size_t i = 0; i < WEIR_HASH_BYTES; i++) {
        snprintf(name + 2 * i, 3, "%02x", key->bytes[i]);
    }
    snprintf(name + 2 * (size_t)WEIR_HASH_BYTES, WEIR_FILE_CACHE_SUFFIX_BYTES + 1, "%s",
             cache->suffix);
}

/* ---------------------------------------------------------------- reading */

/* Read and check a file. @return WEIR_ERR_INVALID: it is damaged. */
static enum weir_status read_file(int fd, const struct weir_hash *key, uint8_t **ret_bytes,
                                  size_t *ret_n_bytes)
{
    struct file_header header;
    struct stat info;

    if (fstat(fd, &info) != 0 || weir_fd_read(fd, &header, sizeof header) != sizeof header ||
        memcmp(header.magic, FILE_MAGIC, sizeof header.magic) != 0 ||
        header.version != FILE_VERSION || header.zero != 0 ||
        memcmp(&header.key, key, sizeof *key) != 0 || header.bytes > FILE_MAX_BYTES ||
        (uint64_t)info.st_size != sizeof header + header.bytes) {
        return WEIR_ERR_INVALID;
    }
    uint8_t *bytes = malloc(header.bytes + 1);
    WEIR_FAIL_IF(!bytes, WEIR_ERR_NO_MEMORY);
    if (weir_fd_read(fd, bytes, header.bytes) != header.bytes) {
        free(bytes);
        return WEIR_ERR_INVALID;
    }
    struct weir_hash hash = weir_hash_of(bytes, header.bytes);
    if (memcmp(&hash, &header.hash, sizeof hash) != 0) {
        free(bytes);
        return WEIR_ERR_INVALID;
    }
    *ret_bytes = bytes;
    *ret_n_bytes = header.bytes;
    return WEIR_OK;
}

enum weir_status weir_file_cache_get(struct weir_file_cache *cache, const struct weir_hash *key,
                                     uint8_t **ret_bytes, size_t *ret_n_bytes)
{
    char name[NAME_BYTES];
    int dir, fd;
    enum weir_status status = WEIR_ERR_NOT_FOUND;

    WEIR_FAIL_IF(cache->dir[0] == 0, WEIR_ERR_NOT_FOUND);
    file_name(cache, key, name);
    dir = open(cache->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* O_NONBLOCK: another worker may have put a pipe there, and opening it would wait. */
    fd = dir >= 0 ? openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd >= 0) {
        status = read_file(fd, key, ret_bytes, ret_n_bytes);
        if (status == WEIR_OK) {
            (void)futimens(fd, NULL); /* sets the time of the last use */
        } else if (status == WEIR_ERR_INVALID) {
            weir_log_warn("cache: damaged file in the cache, removed file=%s", name);
            (void)unlinkat(dir, name, 0);
            status = WEIR_ERR_NOT_FOUND;
        }
        close(fd);
    }
    weir_fd_close(dir);
    return status;
}

/* ---------------------------------------------------------------- writing */

struct old_file {
    char name[NAME_BYTES];
    uint64_t bytes;
    struct timespec used;
};

struct listing {
    struct old_file *files;
    size_t n, room;
    uint64_t bytes;
};

static int longest_unused(const void *a, const void *b)
{
    const struct old_file *x = a, *y = b;

    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    }
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static bool is_ours(const struct weir_file_cache *cache, const char *name)
{
    size_t n = strlen(name);

    return n == NAME_BYTES - 1 &&
           strcmp(name + n - WEIR_FILE_CACHE_SUFFIX_BYTES, cache->suffix) == 0;
}

static void list_file(const struct weir_file_cache *cache, struct listing *list, int dir,
                      const char *name)
{
    struct stat info;

    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
        return;
    }
    if (!is_ours(cache, name)) {
        if (strncmp(name, "tmp.", 4) == 0 && time(NULL) - info.st_mtime > STALE_S) {
            (void)unlinkat(dir, name, 0);
        }
        return;
    }
    if (!WEIR_GROW(list->files, list->n, list->room)) {
        return; /* the list has no memory: the file is not counted */
    }
    memcpy(list->files[list->n].name, name, NAME_BYTES); /* is_ours() checked the name's length */
    list->files[list->n].bytes = (uint64_t)info.st_size;
    list->files[list->n++].used = info.st_mtim;
    list->bytes += (uint64_t)info.st_size;
}

/* Remove the least recently used files until there is room for this many bytes. */
static void make_room(struct weir_file_cache *cache, int dir, uint64_t bytes)
{
    struct listing list = {0};
    int copy = dup(dir);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    struct dirent *entry;

    if (!entries) {
        weir_fd_close(copy);
        return;
    }
    rewinddir(entries);
    while ((entry = readdir(entries))) {
        list_file(cache, &list, dir, entry->d_name);
    }
    closedir(entries);
    if (list.n > 0 && list.bytes + bytes > cache->limit_bytes) {
        qsort(list.files, list.n, sizeof *list.files, longest_unused);
    }
    for (size_t i = 0; i < list.n && list.bytes + bytes > cache->limit_bytes; i++) {
        (void)unlinkat(dir, list.files[i].name, 0);
        list.bytes -= list.files[i].bytes;
    }
    free(list.files);
}

static enum weir_status write_locked(struct weir_file_cache *cache, int dir,
                                     const struct file_header *header, const uint8_t *bytes)
{
    char name[NAME_BYTES], temporary[64];

    make_room(cache, dir, sizeof *header + header->bytes);
    snprintf(temporary, sizeof temporary, "tmp.%ld.%lx", (long)getpid(), (long)gettid());
    int fd = openat(dir, temporary,
                    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    WEIR_FAIL_IF(fd < 0, WEIR_ERR_IO);
    file_name(cache, &header->key, name);
    bool good = weir_fd_write(fd, header, sizeof *header) == sizeof *header &&
                weir_fd_write(fd, bytes, header->bytes) == header->bytes;
    good = close(fd) == 0 && good && renameat(dir, temporary, dir, name) == 0;
    if (!good) {
        (void)unlinkat(dir, temporary, 0);
    }
    return good ? WEIR_OK : WEIR_ERR_IO;
}

enum weir_status weir_file_cache_put(struct weir_file_cache *cache, const struct weir_hash *key,
                                     const uint8_t *bytes, size_t n_bytes)
{
    struct file_header header = {.version = FILE_VERSION, .key = *key, .bytes = n_bytes};

    WEIR_FAIL_IF(cache->dir[0] == 0, WEIR_ERR_UNSUPPORTED);
    WEIR_FAIL_IF(n_bytes > FILE_MAX_BYTES || sizeof header + n_bytes > cache->limit_bytes,
                 WEIR_ERR_TOO_BIG);
    memcpy(header.magic, FILE_MAGIC, sizeof header.magic);
    header.hash = weir_hash_of(bytes, n_bytes);
    int dir = open(cache->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    WEIR_FAIL_IF(dir < 0, WEIR_ERR_IO);
    pthread_mutex_lock(&cache->lock);
    enum weir_status status = write_locked(cache, dir, &header, bytes);
    pthread_mutex_unlock(&cache->lock);
    close(dir);
    return status;
}
