/*
 * What processes of a tenant share, step by step: each line of stdin is a command, and is answered
 * by one line "= TEXT". A command that CUDA refuses is answered by "= error CODE".
 *
 * Memory (one piece at a time; at: where): alloc BYTES WORD, give, open HANDLE BYTES, close, free;
 * create BYTES WORD (its descriptor, too), import BYTES, unmap; pool BYTES WORD (likewise),
 * give_pointer, import_pool, open_pointer HANDLE BYTES, free_pointer; fill WORD, words (the first
 * and the last); reset (the context ends, and with it what is open). Events: event, give_event,
 * open_event HANDLE, record, wait, query, synchronize, destroy_event. The stream: gate (what
 * follows waits for go), fill_later WORD, query_stream. Devices: use DEVICE (for create and alloc),
 * device (on which the memory lies). The descriptor: descriptor (its pid and number), fetch PID FD
 * (by pidfd_getfd), listen PATH, send PATH and receive (by SCM_RIGHTS), close_fd. use_host (create
 * makes memory of the host), peek (its first word, as the processor reads it).
 */
#include "tests/cuda/vmm.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define LINE_BYTES 512

static struct {
    CUdeviceptr at;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUevent event;
    CUstream stream;
    CUdeviceptr gate;
    volatile uint32_t *gate_word;
    int fd, listener, device, on_host;
} my = {.fd = -1, .listener = -1};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            return result_;                                                                        \
        }                                                                                          \
    } while (0)

/* ---------------------------------------------------------------- text */

static void say_bytes(const void *bytes, size_t n)
{
    printf("= ");
    for (size_t i = 0; i < n; i++) {
        printf("%02x", ((const unsigned char *)bytes)[i]);
    }
    printf("\n");
}

static int read_bytes(const char *text, void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) {
            return 0;
        }
        ((unsigned char *)bytes)[i] = (unsigned char)byte;
    }
    return 1;
}

static unsigned long long number(const char *text)
{
    return strtoull(text, NULL, 0);
}

/* ---------------------------------------------------------------- memory */

/* Whatever the gated stream waits for. */
static CUresult fill(uint32_t word)
{
    TRY(cu.MemsetD32Async(my.at, word, my.bytes / 4, NULL));
    return cu.StreamSynchronize(NULL);
}

static CUresult do_alloc(const char *bytes, const char *word)
{
    my.bytes = number(bytes);
    TRY(cu.MemAlloc_v2(&my.at, my.bytes));
    return fill((uint32_t)number(word));
}

static CUresult do_words(void)
{
    uint32_t first, last;
    TRY(cu.MemcpyDtoH_v2(&first, my.at, 4));
    TRY(cu.MemcpyDtoH_v2(&last, my.at + my.bytes - 4, 4));
    printf("= %u %u\n", first, last);
    return CUDA_SUCCESS;
}

static CUresult do_give(void)
{
    CUipcMemHandle handle;
    TRY(cu.IpcGetMemHandle(&handle, my.at));
    say_bytes(&handle, sizeof handle);
    return CUDA_SUCCESS;
}

static CUresult do_open(const char *text, const char *bytes)
{
    CUipcMemHandle handle;
    read_bytes(text, &handle, sizeof handle);
    TRY(cu.IpcOpenMemHandle_v2(&my.at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    my.bytes = number(bytes);
    return CUDA_SUCCESS;
}

static CUresult map_handle(void)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = my.device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    TRY(cu.MemAddressReserve(&my.at, my.bytes, 0, 0, 0));
    TRY(cu.MemMap(my.at, my.bytes, 0, my.handle, 0));
    TRY(cu.MemSetAccess(my.at, my.bytes, &access, 1));
    return cu.MemRelease(my.handle);
}

static CUresult do_create(const char *bytes, const char *word)
{
    CUmemAllocationProp prop = vmm_prop(1);
    if (my.on_host) {
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    } else {
        prop.location.id = my.device;
    }
    my.bytes = number(bytes);
    TRY(cu.MemCreate(&my.handle, my.bytes, &prop, 0));
    TRY(cu.MemExportToShareableHandle(&my.fd, my.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    TRY(map_handle());
    return fill((uint32_t)number(word));
}

static CUresult do_import(const char *bytes)
{
    my.bytes = number(bytes);
    TRY(cu.MemImportFromShareableHandle(&my.handle, (void *)(intptr_t)my.fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return map_handle();
}

static CUresult do_use(const char *device)
{
    CUcontext context;
    my.device = (int)number(device);
    TRY(cu.DevicePrimaryCtxRetain(&context, my.device));
    return cu.CtxSetCurrent(context);
}

static CUresult do_use_host(void)
{
    my.on_host = 1;
    return CUDA_SUCCESS;
}

static CUresult do_peek(void)
{
    CUmemAccessDesc here = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    TRY(cu.MemSetAccess(my.at, my.bytes, &here, 1));
    printf("= %u\n", *(volatile unsigned *)(uintptr_t)my.at);
    return CUDA_SUCCESS;
}

static CUresult do_device(void)
{
    int device;
    TRY(cu.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, my.at));
    printf("= %d\n", device);
    return CUDA_SUCCESS;
}

static CUresult do_unmap(void)
{
    TRY(cu.MemUnmap(my.at, my.bytes));
    return cu.MemAddressFree(my.at, my.bytes);
}

/* ---------------------------------------------------------------- pools */

static CUresult do_pool(const char *bytes, const char *word)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    my.bytes = number(bytes);
    TRY(cu.MemPoolCreate(&my.pool, &props));
    TRY(cu.MemPoolExportToShareableHandle(&my.fd, my.pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0));
    TRY(cu.MemAllocFromPoolAsync(&my.at, my.bytes, my.pool, NULL));
    return fill((uint32_t)number(word));
}

static CUresult do_give_pointer(void)
{
    CUmemPoolPtrExportData data;
    TRY(cu.MemPoolExportPointer(&data, my.at));
    say_bytes(&data, sizeof data);
    return CUDA_SUCCESS;
}

static CUresult do_import_pool(void)
{
    return cu.MemPoolImportFromShareableHandle(&my.pool, (void *)(intptr_t)my.fd,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult do_open_pointer(const char *text, const char *bytes)
{
    CUmemPoolPtrExportData data;
    read_bytes(text, &data, sizeof data);
    TRY(cu.MemPoolImportPointer(&my.at, my.pool, &data));
    my.bytes = number(bytes);
    return CUDA_SUCCESS;
}

static CUresult do_free_pointer(void)
{
    TRY(cu.MemFreeAsync(my.at, NULL));
    return cu.StreamSynchronize(NULL);
}

/* ---------------------------------------------------------------- events and the stream */

static CUresult do_give_event(void)
{
    CUipcEventHandle handle;
    TRY(cu.IpcGetEventHandle(&handle, my.event));
    say_bytes(&handle, sizeof handle);
    return CUDA_SUCCESS;
}

static CUresult do_open_event(const char *text)
{
    CUipcEventHandle handle;
    read_bytes(text, &handle, sizeof handle);
    return cu.IpcOpenEventHandle(&my.event, handle);
}

static CUresult do_gate(void)
{
    void *word;

    if (!my.gate_word) { /* programs of other machines have no such memory */
        DRV(cu.MemHostAlloc(&word, 4096, 0));
        DRV(cu.MemHostGetDevicePointer_v2(&my.gate, word, 0));
        my.gate_word = word;
    }
    *my.gate_word = 0;
    return cu.StreamWaitValue32_v2(my.stream, my.gate, 1, CU_STREAM_WAIT_VALUE_GEQ);
}

static CUresult do_go(void)
{
    *my.gate_word = 1;
    return CUDA_SUCCESS;
}

/* Behind what the stream waits for. */
static CUresult do_fill_later(const char *word)
{
    return cu.MemsetD32Async(my.at, (uint32_t)number(word), my.bytes / 4, my.stream);
}

/* ---------------------------------------------------------------- descriptors */

static CUresult say_fd(void)
{
    printf("= %d %d\n", (int)getpid(), my.fd);
    return CUDA_SUCCESS;
}

static CUresult do_fetch(const char *pid, const char *fd)
{
    int of = (int)syscall(SYS_pidfd_open, (pid_t)number(pid), 0);
    my.fd = (int)syscall(SYS_pidfd_getfd, of, (int)number(fd), 0);
    if (my.fd < 0) {
        check_die("pidfd_getfd: %s", strerror(errno));
    }
    close(of);
    return CUDA_SUCCESS;
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

static CUresult do_listen(const char *path)
{
    struct sockaddr_un address = address_of(path);
    my.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(my.listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(my.listener, 1) != 0) {
        check_die("no socket at %s", path);
    }
    return CUDA_SUCCESS;
}

static CUresult do_send(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&address, sizeof(address)) != 0) {
        check_die("nobody at %s", path);
    }
    vmm_send_fd(s, my.fd, "d", 1);
    close(s);
    return CUDA_SUCCESS;
}

static CUresult do_receive(void)
{
    char letter;
    int s = accept(my.listener, NULL, NULL);
    my.fd = vmm_receive_fd(s, &letter, 1);
    close(s);
    return CUDA_SUCCESS;
}

static CUresult do_close_fd(void)
{
    close(my.fd);
    my.fd = -1;
    return CUDA_SUCCESS;
}

static CUresult do_at(void)
{
    printf("= %#llx\n", (unsigned long long)my.at);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- commands */

/* Those that answer themselves say so. */
static CUresult run(char **words, int *ret_answered)
{
    const struct {
        const char *name;
        CUresult (*run)(void);
        int answers;
    } plain[] = {{"words", do_words, 1},
                 {"give", do_give, 1},
                 {"give_pointer", do_give_pointer, 1},
                 {"give_event", do_give_event, 1},
                 {"descriptor", say_fd, 1},
                 {"device", do_device, 1},
                 {"at", do_at, 1},
                 {"peek", do_peek, 1},
                 {"use_host", do_use_host, 0},
                 {"unmap", do_unmap, 0},
                 {"import_pool", do_import_pool, 0},
                 {"free_pointer", do_free_pointer, 0},
                 {"gate", do_gate, 0},
                 {"go", do_go, 0},
                 {"receive", do_receive, 0},
                 {"close_fd", do_close_fd, 0}};
    const struct {
        const char *name;
        CUresult (*run)(const char *a);
    } one[] = {{"open_event", do_open_event}, {"import", do_import},
               {"listen", do_listen},         {"send", do_send},
               {"fill_later", do_fill_later}, {"use", do_use}};
    const struct {
        const char *name;
        CUresult (*run)(const char *a, const char *b);
    } two[] = {{"alloc", do_alloc}, {"open", do_open},   {"create", do_create},
               {"pool", do_pool},   {"fetch", do_fetch}, {"open_pointer", do_open_pointer}};

    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(words[0], plain[i].name) == 0) {
            CUresult result = plain[i].run();
            *ret_answered = plain[i].answers && result == CUDA_SUCCESS;
            return result;
        }
    }
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
        if (strcmp(words[0], one[i].name) == 0) {
            return one[i].run(words[1]);
        }
    }
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        if (strcmp(words[0], two[i].name) == 0) {
            return two[i].run(words[1], words[2]);
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* Those that are no more than a call. */
static CUresult call(const char *name, const char *arg)
{
    const unsigned flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

    return strcmp(name, "fill") == 0            ? fill((uint32_t)number(arg))
           : strcmp(name, "free") == 0          ? cu.MemFree_v2(my.at)
           : strcmp(name, "close") == 0         ? cu.IpcCloseMemHandle(my.at)
           : strcmp(name, "reset") == 0         ? cu.DevicePrimaryCtxReset_v2(0)
           : strcmp(name, "event") == 0         ? cu.EventCreate(&my.event, flags)
           : strcmp(name, "record") == 0        ? cu.EventRecord(my.event, my.stream)
           : strcmp(name, "wait") == 0          ? cu.StreamWaitEvent(my.stream, my.event, 0)
           : strcmp(name, "query") == 0         ? cu.EventQuery(my.event)
           : strcmp(name, "synchronize") == 0   ? cu.EventSynchronize(my.event)
           : strcmp(name, "destroy_event") == 0 ? cu.EventDestroy_v2(my.event)
           : strcmp(name, "query_stream") == 0  ? cu.StreamQuery(my.stream)
                                                : CUDA_ERROR_NOT_FOUND;
}

static void obey(char *line)
{
    char *words[3] = {line, line + strlen(line), line + strlen(line)};
    int answered = 0;

    for (int i = 1; i < 3; i++) {
        char *blank = strchr(words[i - 1], ' ');
        if (!blank) {
            break;
        }
        *blank = '\0';
        words[i] = blank + 1;
    }
    CUresult result = run(words, &answered);
    result = result == CUDA_ERROR_NOT_FOUND ? call(words[0], words[1]) : result;
    if (result != CUDA_SUCCESS) {
        printf("= error %d\n", (int)result);
    } else if (!answered) {
        printf("= ok\n");
    }
}

int main(void)
{
    char line[LINE_BYTES];

    vmm_begin("e2e_ipc");
    DRV(cu.StreamCreate(&my.stream, CU_STREAM_NON_BLOCKING));
    printf("= ready\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        obey(line);
    }
    return 0;
}
