/*
 * Loading, initialising and shutting down Weir's libnvidia-ml.so.1.
 *
 * The library never talks to a host itself: it calls a table of Weir's libcuda.so.1
 * (proto/nvml/session_table.h). It uses the libcuda.so.1 that the program has loaded, or else the
 * one beside this file, so that a program never has two.
 *
 * As in NVIDIA's NVML, nvmlInit counts: functions work until nvmlShutdown was called as often. The
 * library needs only libc, prints nothing, and stays loaded as long as libcuda.so.1.
 */
#include "nvml_lib/lib.h"

#include "proto/beside.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define INIT_FLAGS 3u /* initialise without GPUs, or without attaching to them */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static const struct weir_nvml_table *table;              /* found once, then kept */
static uint32_t n_inits;                                 /* atomic to read */

static const struct weir_nvml_table *table_of(void *library)
{
    static const uint8_t id[16] = WEIR_NVML_TABLE_UUID;
    return weir_libcuda_table(library, id, sizeof *table, WEIR_NVML_TABLE_VERSION);
}

static const struct weir_nvml_table *find_table_locked(void)
{
    if (table) {
        return table;
    }
    table = table_of(weir_libcuda_loaded());
    if (!table) {
        table = table_of(weir_library_beside((uintptr_t)&find_table_locked, "libcuda.so.1"));
    }
    return table; /* libcuda.so.1 stays open, because the table lies in its memory */
}

static void in_forked_child(void)
{
    pthread_mutex_init(&lock, NULL);
}

nvmlReturn_t weir_nvml_enter(void)
{
    return __atomic_load_n(&n_inits, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

const struct weir_nvml_table *weir_nvml_session(void)
{
    return table;
}

nvmlReturn_t weir_nvml_cuda_version(int *ret_version)
{
    pthread_mutex_lock(&lock);
    const struct weir_nvml_table *found = find_table_locked();
    pthread_mutex_unlock(&lock);
    WEIR_FAIL_IF(!found, NVML_ERROR_LIBRARY_NOT_FOUND);
    *ret_version = found->cuda_version();
    return NVML_SUCCESS;
}

static nvmlReturn_t init(void)
{
    static bool prepared;
    int saved = errno;
    pthread_mutex_lock(&lock);
    if (!prepared) {
        pthread_atfork(NULL, NULL, in_forked_child);
        prepared = true;
    }
    const struct weir_nvml_table *found = find_table_locked();
    nvmlReturn_t result = NVML_ERROR_LIBRARY_NOT_FOUND;
    if (found) {
        result = n_inits ? NVML_SUCCESS : found->open();
    }
    if (result == NVML_SUCCESS) {
        __atomic_add_fetch(&n_inits, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}

WEIR_NVML_EXPORT nvmlReturn_t nvmlInit_v2(void);
WEIR_NVML_EXPORT nvmlReturn_t nvmlInit(void);
WEIR_NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
WEIR_NVML_EXPORT nvmlReturn_t nvmlShutdown(void);
WEIR_NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result);
WEIR_NVML_EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void **ret_table, const void *id);

nvmlReturn_t nvmlInit_v2(void)
{
    return init();
}

nvmlReturn_t nvmlInit(void)
{
    return init();
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    return flags & ~INIT_FLAGS ? NVML_ERROR_INVALID_ARGUMENT : init();
}

nvmlReturn_t nvmlShutdown(void)
{
    int saved = errno;
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = n_inits ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (n_inits && __atomic_sub_fetch(&n_inits, 1, __ATOMIC_RELEASE) == 0) {
        table->close();
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        int code;
        const char *text;
    } texts[] = {
        {0, "Success"},
        {1, "Uninitialized"},
        {2, "Invalid Argument"},
        {3, "Not Supported"},
        {4, "Insufficient Permissions"},
        {5, "Already Initialized"},
        {6, "Not Found"},
        {7, "Insufficient Size"},
        {8, "Insufficient External Power"},
        {9, "Driver Not Loaded"},
        {10, "Timeout"},
        {11, "Interrupt Request Issue"},
        {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"},
        {14, "Corrupted infoROM"},
        {15, "GPU is lost"},
        {16, "GPU requires reset"},
        {17, "GPU access blocked by the operating system"},
        {18, "Driver/library version mismatch"},
        {19, "In use by another client"},
        {20, "Insufficient Memory"},
        {21, "No data"},
        {22, "vGPU with ECC is not supported"},
        {23, "Insufficient resources"},
        {24, "Frequency not supported"},
        {25, "Argument version mismatch"},
        {26, "Deprecated"},
        {27, "Not ready"},
        {28, "GPU not found"},
        {29, "Invalid state"},
        {30, "Reset type not supported"},
    };
    size_t at = WEIR_FIRST(i, WEIR_COUNT(texts), texts[i].code == (int)result);
    return at < WEIR_COUNT(texts) ? texts[at].text : "Unknown Error";
}

/*
 * Undocumented; nvidia-smi does not start without its table. A UUID of Weir's own lets a worker
 * tell this library from NVIDIA's.
 */
nvmlReturn_t nvmlInternalGetExportTable(const void **ret_table, const void *id)
{
    static const uint8_t own[16] = WEIR_NVML_TABLE_UUID;
    static const size_t own_table[1] = {sizeof own_table};
    WEIR_FAIL_IF(!ret_table || !id, NVML_ERROR_INVALID_ARGUMENT);
    *ret_table = memcmp(id, own, sizeof own) == 0 ? own_table : weir_nvml_export_table(id);
    return *ret_table ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
