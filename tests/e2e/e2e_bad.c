/*
 * Bad input through the Driver API: every call must give a clear error, and the program must be
 * able to go on afterwards.
 *
 * e2e_bad images              truncated, corrupt and random module images
 * e2e_bad handles             handles that never were, of another kind, or gone; double frees
 * e2e_bad launches            launches over the limits
 * e2e_bad foreign ADDR BYTES  copies from and to another tenant's memory
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define FATBIN_MAGIC  0xba55ed50u
#define WRAPPER_MAGIC 0x466243b1
#define RANDOM_IMAGES 40
#define RANDOM_BYTES  4096

struct fatbin_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; /* after the header */
};

struct fatbin_entry {
    uint16_t kind; /* 1 PTX, 2 cubin */
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes;
    uint32_t options_pair; /* where {offset, length} of the options stands */
    uint16_t minor;
    uint16_t major;
    uint32_t arch;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t unused1;
    uint64_t uncompressed_bytes;
    uint32_t options_offset;
    uint32_t options_bytes;
    uint64_t options_room;
};

static void check_works(const char *when)
{
    CUmodule module;
    CUdeviceptr memory;
    uint32_t word = 1;
    uint32_t n = 1;
    uint32_t a = 4;
    uint32_t b = 2;
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&memory, sizeof(word)));
    DRV(cu.MemcpyHtoD_v2(memory, &word, sizeof(word)));
    void *params[] = {&memory, &n, &a, &b};
    driver_launch(driver_function(module, "mix"), 1, 32, NULL, params);
    DRV(cu.MemcpyDtoH_v2(&word, memory, sizeof(word)));
    check_int(word, 6, when);
    DRV(cu.MemFree_v2(memory));
    DRV(cu.ModuleUnload(module));
}

/* An image must be refused, with an error that speaks of images. */
static void refused(const void *image, const char *label)
{
    CUmodule module = NULL;
    char detail[64];
    CUresult result = cu.ModuleLoadData(&module, image);
    bool clear = result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX ||
                 result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_VALUE ||
                 result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
                 result == CUDA_ERROR_INVALID_SOURCE ||
                 result == CUDA_ERROR_UNKNOWN; /* what driver 580 itself says of some cubins */
    snprintf(detail, sizeof(detail), "got %d", (int)result);
    check_detail(clear, label, detail);
    if (result == CUDA_SUCCESS) {
        DRV(cu.ModuleUnload(module));
    }
}

/* false: a driver is loaded directly (second argument "direct"). */
static bool through_host = true;

/* A fat binary with one PTX entry, whose lengths the caller then falsifies. In a zeroed megabyte,
 * so that a reader that believes a small lie reads zeros and not past the program's memory. */
static char *make_fatbin(struct fatbin_header **ret_header, struct fatbin_entry **ret_entry)
{
    char *image = calloc(1, 1u << 20);
    if (!image) {
        check_die("out of memory");
    }
    struct fatbin_header *header = (struct fatbin_header *)(void *)image;
    struct fatbin_entry *entry = (struct fatbin_entry *)(void *)(image + sizeof(*header));
    *header =
        (struct fatbin_header){FATBIN_MAGIC, 1, sizeof(*header), sizeof(*entry) + sizeof(e2e_ptx)};
    *entry = (struct fatbin_entry){.kind = 1,
                                   .version = 0x101,
                                   .header_bytes = sizeof(*entry),
                                   .bytes = (sizeof(e2e_ptx) + 7) & ~7ull,
                                   .minor = 4,
                                   .major = 6,
                                   .arch = 75,
                                   .flags = 0x11,
                                   .options_pair = 64,
                                   .options_offset = 72};
    header->bytes = sizeof(*entry) + entry->bytes;
    memcpy(entry + 1, e2e_ptx, sizeof(e2e_ptx));
    *ret_header = header;
    *ret_entry = entry;
    return image;
}

static void bad_fatbins(void)
{
    struct fatbin_header *header;
    struct fatbin_entry *entry;
    CUmodule module;
    char *image = make_fatbin(&header, &entry);
    struct fatbin_header good_header = *header;
    struct fatbin_entry good_entry = *entry;
    check_code(cu.ModuleLoadData(&module, image), CUDA_SUCCESS, "the fat binary as it should be");
    DRV(cu.ModuleUnload(module));
    header->bytes = 16;
    refused(image, "fat binary cut in its first entry");
    *header = good_header;
    entry->bytes = ~0ull - 64;
    refused(image, "fat binary whose entry is 16 EiB");
    *entry = good_entry;
    entry->header_bytes = 0xffffffffu;
    refused(image, "fat binary whose entry's header is 4 GiB");
    *entry = good_entry;
    entry->header_bytes = 0;
    refused(image, "fat binary whose entry has no header");
    *entry = good_entry;
    entry->options_pair = 0x7fffffffu;
    if (through_host) { /* NVIDIA's driver does not survive this one, softgpu does not look */
        refused(image, "fat binary whose options lie outside");
    }
    *entry = good_entry;
    entry->compressed_bytes = 1000;
    entry->uncompressed_bytes = 1ull << 60;
    entry->flags |= 0x2000;
    refused(image, "fat binary that claims to inflate to 1 EiB");
    *entry = good_entry;
    entry->compressed_bytes = 1000;
    entry->uncompressed_bytes = 4096;
    entry->flags |= 0x2000;
    refused(image, "fat binary whose compressed bytes are not");
    *entry = good_entry;
    header->bytes = 0;
    refused(image, "fat binary without an entry");
    *header = good_header;
    header->version = 77;
    header->header_bytes = 3;
    refused(image, "fat binary of a version that never was");
    free(image);
}

static void bad_elfs(void)
{
    char *image = calloc(1, 1u << 20);
    if (!image) {
        check_die("out of memory");
    }
    Elf64_Ehdr *elf = (Elf64_Ehdr *)(void *)image;
    memcpy(elf->e_ident, ELFMAG, SELFMAG);
    elf->e_ident[EI_CLASS] = ELFCLASS64;
    elf->e_ident[EI_DATA] = ELFDATA2LSB;
    elf->e_ident[EI_VERSION] = EV_CURRENT;
    elf->e_type = ET_EXEC;
    elf->e_machine = 190;
    elf->e_version = EV_CURRENT;
    elf->e_ehsize = sizeof(*elf);
    refused(image, "cubin that ends after its header");
    elf->e_shoff = sizeof(*elf);
    elf->e_shentsize = sizeof(Elf64_Shdr);
    elf->e_shnum = 8;
    elf->e_shstrndx = 7;
    refused(image, "cubin with empty sections");
    Elf64_Shdr *sections = (Elf64_Shdr *)(void *)(image + sizeof(*elf));
    sections[7].sh_type = SHT_STRTAB;
    sections[7].sh_offset = sizeof(*elf);
    sections[7].sh_size = 4;
    sections[1].sh_name = 0x7fffffff;
    sections[1].sh_type = SHT_SYMTAB;
    sections[1].sh_offset = 100;
    sections[1].sh_size = 33;
    sections[1].sh_entsize = 1;
    refused(image, "cubin with names outside its names");
    elf->e_machine = EM_X86_64;
    refused(image, "ELF file of another machine");
    free(image);
}

static void bad_ptx(void)
{
    static const struct {
        const char *label;
        const char *text;
    } rows[] = {
        {"empty PTX", ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry k("},
        {"PTX with garbage", ".version 6.4\n.target sm_75\n.address_size 64\n}{;;; frobnicate %r1"},
        {"PTX without a version", ".target sm_75\n.visible .entry k() { ret; }\n"},
        {"PTX with an unknown instruction", ".version 6.4\n.target sm_75\n.address_size "
                                            "64\n.visible .entry k() { frob.u32 1; ret; }\n"},
        {"PTX with an unknown register", ".version 6.4\n.target sm_75\n.address_size 64\n.visible "
                                         ".entry k() { mov.u32 %r1, 0; ret; "
                                         "}\n"},
        {"PTX with an endless name", NULL},
        {"text that is no PTX", "#include <stdio.h>\nint main(void) { return 0; }\n"},
        {"the empty text", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static char text[300000];
        if (rows[i].text) {
            refused(rows[i].text, rows[i].label);
            continue;
        }
        memset(text, 'x', sizeof(text) - 1);
        memcpy(text, ".version 6.4\n", 13);
        refused(text, rows[i].label);
    }
    /* Cut anywhere but in the blank at the end, the text is no module. */
    size_t bytes = strlen(e2e_ptx);
    char *cut = malloc(bytes + 1);
    if (!cut) {
        check_die("out of memory");
    }
    for (size_t at = 60; at < bytes - 4; at += 97) {
        char label[64];
        memcpy(cut, e2e_ptx, bytes);
        cut[at] = '\0';
        snprintf(label, sizeof(label), "PTX cut at %zu", at);
        if (strchr(cut, '{')) {
            refused(cut, label);
        }
    }
    free(cut);
}

static void random_images(void)
{
    uint32_t seed = 99;
    char *image = calloc(1, 1u << 20);
    if (!image) {
        check_die("out of memory");
    }
    for (int i = 0; i < RANDOM_IMAGES; i++) {
        char label[64];
        static const uint32_t magics[] = {0, FATBIN_MAGIC, 0x464c457fu, 0x7265762eu};
        for (size_t at = 0; at < RANDOM_BYTES; at++) {
            image[at] = (char)(check_random(&seed) & 0xff);
        }
        if (i % 4) {
            memcpy(image, &magics[i % 4], 4);
        }
        snprintf(label, sizeof(label), "random bytes, number %d", i);
        refused(image, label);
    }
    free(image);
}

static void bad_images(void)
{
    CUmodule module;
    struct {
        int magic;
        int version;
        const void *data;
        const void *list;
    } wrapper = {WRAPPER_MAGIC, 1, NULL, NULL};
    check_code(cu.ModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE, "no image");
    refused(&wrapper, "wrapper around nothing");
    bad_fatbins();
    check_works("a good module loads after bad fat binaries");
    bad_elfs();
    bad_ptx();
    check_works("a good module loads after bad PTX");
    random_images();
    check_works("a good module loads after random bytes");
}

/* An error of a handle: invalid value, context, handle, or resource. */
static void refused_handle(CUresult result, const char *label)
{
    char detail[64];
    bool clear = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
                 result == CUDA_ERROR_INVALID_CONTEXT ||
                 result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_NOT_FOUND ||
                 result == CUDA_ERROR_ILLEGAL_STATE;
    snprintf(detail, sizeof(detail), "got %d", (int)result);
    check_detail(clear, label, detail);
}

static void double_frees(void)
{
    CUdeviceptr memory;
    void *pinned;
    CUmodule module;
    CUgraph graph;
    CUstream stream;
    CUgraphExec exec;
    DRV(cu.MemAlloc_v2(&memory, 1u << 20));
    refused_handle(cu.MemFree_v2(memory + 256), "free inside a block");
    DRV(cu.MemFree_v2(memory));
    refused_handle(cu.MemFree_v2(memory), "free twice");
    refused_handle(cu.MemFree_v2(0x123456789000ull), "free what never was");
    check_code(cu.MemFree_v2(0), CUDA_SUCCESS, "free nothing");
    DRV(cu.MemHostAlloc(&pinned, 4096, 0));
    DRV(cu.MemFreeHost(pinned));
    refused_handle(cu.MemFreeHost(pinned), "free pinned memory twice");
    refused_handle(cu.MemFreeHost(&memory), "free pinned memory that never was");
    DRV(cu.StreamCreate(&stream, 0));
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.ModuleUnload(module));
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(stream));
}

/* Copies with addresses that belong to nobody here. */
static void wild_copies(void)
{
    static char bytes[4096];
    CUdeviceptr memory;
    DRV(cu.MemAlloc_v2(&memory, sizeof(bytes)));
    refused_handle(cu.MemcpyDtoH_v2(bytes, 0x1000, sizeof(bytes)), "copy from address 4096");
    refused_handle(cu.MemcpyHtoD_v2(0x7fff00000000ull, bytes, sizeof(bytes)),
                   "copy to a wild address");
    refused_handle(cu.MemcpyDtoH_v2(bytes, ~0ull - 100, sizeof(bytes)),
                   "copy across the last address");
    refused_handle(cu.MemcpyDtoD_v2(memory, memory, (size_t)1 << 40), "copy of a tebibyte");
    refused_handle(cu.MemsetD8_v2(0x2000, 1, 64), "memset of a wild address");
    refused_handle(cu.MemsetD32_v2(memory, 1, ~(size_t)0), "memset without end");
    DRV(cu.MemFree_v2(memory));
}

/* Weir's handles carry kind and generation, so wrong ones are told;
 * NVIDIA's driver believes them. */
static void wrong_handles(void)
{
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUfunction function;
    CUstream wild = (CUstream)(uintptr_t)0xdeadbeef00ull;
    DRV(cu.StreamCreate(&stream, 0));
    DRV(cu.EventCreate(&event, 0));
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    function = driver_function(module, "mix");
    refused_handle(cu.StreamSynchronize(wild), "a stream that never was");
    refused_handle(cu.StreamSynchronize((CUstream)event), "an event as a stream");
    refused_handle(cu.EventRecord((CUevent)stream, stream), "a stream as an event");
    refused_handle(cu.EventRecord((CUevent)wild, stream), "an event that never was");
    refused_handle(cu.ModuleUnload((CUmodule)stream), "a stream as a module");
    refused_handle(cu.ModuleGetFunction(&function, (CUmodule)wild, "mix"),
                   "a module that never was");
    refused_handle(cu.LaunchKernel((CUfunction)wild, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                   "a function that never was");
    check_code(cu.ModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND,
               "a kernel that is not in the module");
    DRV(cu.StreamDestroy_v2(stream));
    refused_handle(cu.StreamSynchronize(stream), "a stream that is gone");
    refused_handle(cu.StreamDestroy_v2(stream), "destroy a stream twice");
    DRV(cu.EventDestroy_v2(event));
    refused_handle(cu.EventSynchronize(event), "an event that is gone");
    refused_handle(cu.EventDestroy_v2(event), "destroy an event twice");
    DRV(cu.ModuleUnload(module));
    refused_handle(cu.ModuleUnload(module), "unload a module twice");
}

static void bad_launches(void)
{
    CUmodule module;
    CUdeviceptr memory;
    uint32_t n = 1;
    int max_shared = 0;
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&memory, 4096));
    DRV(cu.DeviceGetAttribute(&max_shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 0));
    CUfunction mix = driver_function(module, "mix");
    void *params[] = {&memory, &n, &n, &n};
    const struct {
        const char *label;
        unsigned grid[3];
        unsigned block[3];
        unsigned shared_bytes;
    } rows[] = {
        {"1025 threads", {1, 1, 1}, {1025, 1, 1}, 0},
        {"32 x 33 threads", {1, 1, 1}, {32, 33, 1}, 0},
        {"65 threads in z", {1, 1, 1}, {1, 1, 65}, 0},
        {"no threads", {1, 1, 1}, {0, 1, 1}, 0},
        {"no blocks", {0, 1, 1}, {32, 1, 1}, 0},
        {"65536 blocks in y", {1, 65536, 1}, {32, 1, 1}, 0},
        {"65536 blocks in z", {1, 1, 65536}, {32, 1, 1}, 0},
        {"2^31 blocks", {0x80000000u, 1, 1}, {32, 1, 1}, 0},
        {"threads whose product wraps", {1, 1, 1}, {0x10000u, 0x10000u, 1}, 0},
        {"too much shared memory", {1, 1, 1}, {32, 1, 1}, (unsigned)max_shared + 1},
        {"4 GiB of shared memory", {1, 1, 1}, {32, 1, 1}, 0xffffffffu},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CUresult result = cu.LaunchKernel(mix, rows[i].grid[0], rows[i].grid[1], rows[i].grid[2],
                                          rows[i].block[0], rows[i].block[1], rows[i].block[2],
                                          rows[i].shared_bytes, NULL, params, NULL);
        check_code(result, CUDA_ERROR_INVALID_VALUE, rows[i].label);
    }
    check_code(cu.CtxSynchronize(), CUDA_SUCCESS, "nothing of it comes later");
    check_code(cu.LaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
               CUDA_ERROR_INVALID_VALUE, "no parameters");
    check_works("a launch works afterwards");
}

static void foreign(CUdeviceptr address, size_t bytes)
{
    char *buffer = malloc(bytes);
    CUdeviceptr own;
    if (!buffer) {
        check_die("out of memory");
    }
    memset(buffer, 0x5a, bytes);
    DRV(cu.MemAlloc_v2(&own, bytes));
    refused_handle(cu.MemcpyDtoH_v2(buffer, address, bytes), "read another tenant's memory");
    check_int(buffer[0], 0x5a, "nothing came");
    refused_handle(cu.MemcpyHtoD_v2(address, buffer, bytes), "write another tenant's memory");
    refused_handle(cu.MemcpyDtoD_v2(own, address, bytes), "copy from another tenant's memory");
    refused_handle(cu.MemcpyDtoD_v2(address, own, bytes), "copy to another tenant's memory");
    refused_handle(cu.MemsetD8_v2(address, 0, bytes), "fill another tenant's memory");
    refused_handle(cu.MemFree_v2(address), "free another tenant's memory");
    DRV(cu.MemFree_v2(own));
    check_works("own work goes on");
    free(buffer);
}

/*
 * A registered file of /dev/shm that is cut short afterwards: what a copy then finds there is
 * nobody's affair, but whoever reads it for us must not die of it.
 */
static void cut_registration(void)
{
    const size_t bytes = 1u << 20;
    char name[64];
    CUdeviceptr device;
    snprintf(name, sizeof(name), "/dev/shm/weir-cut-%d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || unlink(name) != 0 || ftruncate(fd, (off_t)bytes) != 0) {
        check_die("no file in /dev/shm");
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        check_die("mmap");
    }
    CUresult registered = cu.MemHostRegister_v2(at, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (registered == CUDA_ERROR_NOT_SUPPORTED) {
        printf("not registered: without a name it is not to be had here\n");
        return;
    }
    check_int((int)registered, 0, "registration of a shared file");
    DRV(cu.MemAlloc_v2(&device, bytes));
    DRV(cu.MemcpyHtoD_v2(device, at, bytes));
    if (ftruncate(fd, 0) != 0) {
        check_die("ftruncate");
    }
    int codes[] = {(int)cu.MemcpyHtoD_v2(device, at, bytes), (int)cu.MemcpyHtoD_v2(device, at, 64),
                   (int)cu.MemcpyDtoH_v2(at, device, bytes)};
    printf("copies of what is gone gave %d %d %d\n", codes[0], codes[1], codes[2]);
    DRV(cu.MemHostUnregister(at));
    DRV(cu.MemFree_v2(device));
    close(fd);
}

int main(int argc, char **argv)
{
    through_host = argc < 3 || strcmp(argv[2], "direct") != 0;
    const char *what = argc > 1 ? argv[1] : "";
    driver_begin("e2e_bad");
    if (strcmp(what, "images") == 0) {
        bad_images();
    } else if (strcmp(what, "handles") == 0) {
        double_frees();
        wild_copies();
        wrong_handles();
        check_works("own work goes on");
    } else if (strcmp(what, "launches") == 0) {
        bad_launches();
    } else if (strcmp(what, "cut") == 0) {
        cut_registration();
        check_works("own work goes on");
    } else if (strcmp(what, "foreign") == 0 && argc == 4) {
        foreign(strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0));
    } else {
        fprintf(stderr, "usage: e2e_bad images|handles|launches|cut|foreign ADDRESS BYTES\n");
        return 2;
    }
    return driver_end();
}
