/*
 * A program that holds one thing of a kind which another worker must make again.
 *
 * e2e_kinds KIND   prints "ready", and for each line of stdin does a round: a kernel or a copy
 *                  changes what it holds, all of it is compared, and "round N" printed.
 *
 * Kinds: registered (memory of its own), shared (a file that it has mapped twice), host (memory of
 * the host by cuMemCreate); array1, array2, array3, layers, cube, mipmap (arrays, to which copies
 * write), captured (one to which a graph copies); texture (kernels read an array by one that was
 * not the first), linear (they read memory by one), surface (they write to an array by one).
 */
#include "tests/cuda/vmm.h"
#include "tests/e2e/kernels.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { PAGE = 4096, WORDS = 3 * PAGE / 4 };

static CUfunction mix, sample, sample_linear, paint;

/* One thread. sample and sample_linear: *out = texel x; paint: texel x becomes v. */
static const char texture_ptx[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry sample(.param .u64 t, .param .u64 out, .param .s32 x)\n{\n"
    ".reg .f32 %f<6>; .reg .b32 %r<6>; .reg .b64 %d<3>;\n"
    "ld.param.u64 %d0, [t]; ld.param.u64 %d1, [out]; ld.param.s32 %r0, [x];\n"
    "cvt.rn.f32.s32 %f0, %r0; add.f32 %f1, %f0, 0f3F000000; mov.f32 %f2, 0f3F000000;\n"
    "tex.2d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [%d0, {%f1, %f2}];\n"
    "cvta.to.global.u64 %d2, %d1; st.global.u32 [%d2], %r1; ret;\n}\n"
    ".visible .entry sample_linear(.param .u64 t, .param .u64 out, .param .s32 x)\n{\n"
    ".reg .b32 %r<6>; .reg .b64 %d<3>;\n"
    "ld.param.u64 %d0, [t]; ld.param.u64 %d1, [out]; ld.param.s32 %r0, [x];\n"
    "tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d0, {%r0}];\n"
    "cvta.to.global.u64 %d2, %d1; st.global.u32 [%d2], %r1; ret;\n}\n"
    ".visible .entry paint(.param .u64 t, .param .u32 v, .param .s32 x)\n{\n"
    ".reg .b32 %r<4>; .reg .b64 %d<1>;\n"
    "ld.param.u64 %d0, [t]; ld.param.u32 %r0, [v]; ld.param.s32 %r1, [x];\n"
    "shl.b32 %r2, %r1, 3; mov.u32 %r3, 0; sust.b.2d.b32.trap [%d0, {%r2, %r3}], {%r0}; ret;\n}\n";

/* Every word becomes three times itself and one. */
static void triple(CUdeviceptr at, uint32_t n)
{
    uint32_t a = 3, b = 1;
    void *params[] = {&at, &n, &a, &b};

    driver_launch(mix, (n + 127) / 128, 128, NULL, params);
    DRV(cu.StreamSynchronize(NULL));
}

static uint32_t tripled(uint32_t word, long times)
{
    for (long i = 0; i < times; i++) {
        word = word * 3 + 1;
    }
    return word;
}

/* ---------------------------------------------------------------- memory of the host */

static uint32_t *words, *others; /* two mappings of the same pages, or one twice */
static CUdeviceptr on_device;

static void fill_words(void)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = i;
    }
}

static void hold_registered(void)
{
    words = others = aligned_alloc(PAGE, WORDS * 4);
    fill_words();
    DRV(cu.MemHostRegister_v2(words, WORDS * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
    DRV(cu.MemHostGetDevicePointer_v2(&on_device, words, 0));
}

static uint32_t *map_file(int fd)
{
    uint32_t *at = mmap(NULL, PAGE + WORDS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        check_die("mmap");
    }
    return at + PAGE / 4;
}

static void hold_shared(void)
{
    char name[64];

    snprintf(name, sizeof(name), "/dev/shm/weir-test-%d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, PAGE + WORDS * 4) != 0) {
        check_die("no file in /dev/shm");
    }
    words = map_file(fd);
    others = map_file(fd);
    close(fd);
    fill_words();
    DRV(cu.MemHostRegister_v2(words, WORDS * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
    DRV(cu.MemHostGetDevicePointer_v2(&on_device, words, 0));
    unlink(name);
}

static void hold_host(void)
{
    CUmemAllocationProp prop = vmm_prop(0);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    DRV(cu.MemCreate(&handle, vmm_unit, &prop, 0));
    DRV(cu.MemAddressReserve(&on_device, vmm_unit, 0, 0, 0));
    vmm_map(on_device, vmm_unit, handle);
    DRV(cu.MemSetAccess(on_device, vmm_unit, &access, 1));
    words = others = (uint32_t *)(uintptr_t)on_device;
    fill_words();
}

static void change_words(long round)
{
    int good = 1;

    triple(on_device, WORDS);
    for (uint32_t i = 0; i < WORDS; i++) {
        good &= others[i] == tripled(i, round + 1);
    }
    check_true(good, "what the kernel has written");
}

/* ---------------------------------------------------------------- arrays */

enum { W = 24, H = 24, D = 6, CHANNELS = 2, TEXEL = CHANNELS * 4, LEVELS = 3 };

static CUarray arrays[LEVELS]; /* one, or the levels of one */
static CUDA_ARRAY3D_DESCRIPTOR_v2 shapes[LEVELS];
static uint32_t n_arrays = 1, texels[D * H * W * CHANNELS];

static size_t words_of(const CUDA_ARRAY3D_DESCRIPTOR_v2 *d)
{
    return CHANNELS * d->Width * (d->Height ? d->Height : 1) * (d->Depth ? d->Depth : 1);
}

static void copy_array(uint32_t i, bool to_array, void *memory)
{
    const CUDA_ARRAY3D_DESCRIPTOR_v2 *d = &shapes[i];
    CUDA_MEMCPY3D_v2 c;

    memset(&c, 0, sizeof(c));
    c.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    c.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    c.srcHost = c.dstHost = memory;
    c.srcArray = c.dstArray = arrays[i];
    c.srcPitch = c.dstPitch = c.WidthInBytes = d->Width * TEXEL;
    c.srcHeight = c.dstHeight = c.Height = d->Height ? d->Height : 1;
    c.Depth = d->Depth ? d->Depth : 1;
    DRV(cu.Memcpy3D_v2(&c));
}

static void fill_array(uint32_t i, uint32_t first)
{
    for (size_t k = 0; k < words_of(&shapes[i]); k++) {
        texels[k] = first + (uint32_t)k;
    }
    copy_array(i, true, texels);
}

static bool holds(uint32_t i, uint32_t first)
{
    bool good = true;

    memset(texels, 0xee, sizeof(texels));
    copy_array(i, false, texels);
    for (size_t k = 0; k < words_of(&shapes[i]); k++) {
        good &= texels[k] == first + (uint32_t)k;
    }
    return good;
}

static void make_array(size_t width, size_t height, size_t depth, unsigned flags)
{
    shapes[0] = (CUDA_ARRAY3D_DESCRIPTOR_v2){.Width = width,
                                             .Height = height,
                                             .Depth = depth,
                                             .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                             .NumChannels = CHANNELS,
                                             .Flags = flags};
    DRV(cu.Array3DCreate_v2(&arrays[0], &shapes[0]));
    fill_array(0, 0);
}

static void hold_array1(void)
{
    make_array(W, 0, 0, 0);
}

static void hold_array2(void)
{
    make_array(W, H, 0, 0);
}

static void hold_array3(void)
{
    make_array(W, H, D, 0);
}

static void hold_layers(void)
{
    make_array(W, 0, D, CUDA_ARRAY3D_LAYERED);
}

static void hold_cube(void)
{
    make_array(W, W, 6, CUDA_ARRAY3D_CUBEMAP);
}

static void hold_mipmap(void)
{
    CUmipmappedArray mipmap;

    shapes[0] = (CUDA_ARRAY3D_DESCRIPTOR_v2){
        .Width = W, .Height = H, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = CHANNELS};
    DRV(cu.MipmappedArrayCreate(&mipmap, &shapes[0], LEVELS));
    for (n_arrays = 0; n_arrays < LEVELS; n_arrays++) {
        shapes[n_arrays] = shapes[0];
        shapes[n_arrays].Width >>= n_arrays;
        shapes[n_arrays].Height >>= n_arrays;
        DRV(cu.MipmappedArrayGetLevel(&arrays[n_arrays], mipmap, n_arrays));
        fill_array(n_arrays, 0);
    }
}

static void change_arrays(long round)
{
    for (uint32_t i = 0; i < n_arrays; i++) {
        check_true(holds(i, (uint32_t)round << 16), "what the array held");
        fill_array(i, (uint32_t)(round + 1) << 16);
    }
}

/* A graph copies to the array from pinned memory. */
static uint32_t *source;
static CUgraphExec exec;

static void hold_captured(void)
{
    CUDA_MEMCPY3D_v2 c;
    CUgraph graph;
    CUgraphNode node;
    CUcontext context;

    make_array(W, H, 0, 0);
    DRV(cu.MemHostAlloc((void **)&source, W * H * TEXEL, 0));
    memset(&c, 0, sizeof(c));
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = source;
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c.dstArray = arrays[0];
    c.srcPitch = c.WidthInBytes = W * TEXEL;
    c.srcHeight = c.Height = H;
    c.Depth = 1;
    DRV(cu.CtxGetCurrent(&context));
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &c, context));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphDestroy(graph));
}

static void change_captured(long round)
{
    check_true(holds(0, (uint32_t)round << 16), "what the array held");
    for (uint32_t k = 0; k < W * H * CHANNELS; k++) {
        source[k] = ((uint32_t)(round + 1) << 16) + k;
    }
    DRV(cu.GraphLaunch(exec, NULL));
    DRV(cu.StreamSynchronize(NULL));
}

/* ---------------------------------------------------------------- textures and surfaces */

static CUtexObject texture;
static CUsurfObject surface;
static CUdeviceptr linear;
static uint32_t *result; /* pinned */

static CUtexObject make_texture(const CUDA_RESOURCE_DESC *resource)
{
    CUDA_TEXTURE_DESC sampler;
    CUtexObject made = 0;

    memset(&sampler, 0, sizeof(sampler));
    sampler.addressMode[0] = sampler.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
    sampler.filterMode = CU_TR_FILTER_MODE_POINT;
    sampler.flags = CU_TRSF_READ_AS_INTEGER;
    DRV(cu.TexObjectCreate(&made, resource, &sampler, NULL));
    return made;
}

/* The second of three: the first is gone again, and its number free. */
static CUtexObject second_texture(const CUDA_RESOURCE_DESC *resource)
{
    CUtexObject first = make_texture(resource), second = make_texture(resource);

    (void)make_texture(resource);
    DRV(cu.TexObjectDestroy(first));
    DRV(cu.MemHostAlloc((void **)&result, 4096, 0));
    return second;
}

static CUDA_RESOURCE_DESC array_resource(void)
{
    CUDA_RESOURCE_DESC resource;

    memset(&resource, 0, sizeof(resource));
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = arrays[0];
    return resource;
}

static uint32_t read_texel(CUfunction function, int x)
{
    void *params[] = {&texture, &result, &x};

    driver_launch(function, 1, 1, NULL, params);
    DRV(cu.StreamSynchronize(NULL));
    return *result;
}

static void hold_texture(void)
{
    make_array(W, H, 0, 0);
    const CUDA_RESOURCE_DESC resource = array_resource();
    texture = second_texture(&resource);
}

static void change_texture(long round)
{
    check_int(read_texel(sample, 5), (round << 16) + 5 * CHANNELS, "what the texture shows");
    change_arrays(round);
}

static void hold_linear(void)
{
    CUDA_RESOURCE_DESC resource;

    DRV(cu.MemAlloc_v2(&linear, 4096));
    DRV(cu.MemsetD32_v2(linear, 7, 1024));
    memset(&resource, 0, sizeof(resource));
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = linear;
    resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 4096;
    texture = second_texture(&resource);
}

static void change_linear(long round)
{
    check_int(read_texel(sample_linear, 1000), tripled(7, round), "what the texture shows");
    triple(linear, 1024);
}

static void hold_surface(void)
{
    make_array(W, H, 0, CUDA_ARRAY3D_SURFACE_LDST);
    const CUDA_RESOURCE_DESC resource = array_resource();
    DRV(cu.SurfObjectCreate(&surface, &resource));
}

static void change_surface(long round)
{
    uint32_t value = 1000 + (uint32_t)round, before = round == 0 ? 5 * CHANNELS : value - 1;
    int x = 5;
    void *params[] = {&surface, &value, &x};

    copy_array(0, false, texels);
    check_int(texels[5 * CHANNELS], before, "what kernels have written by the surface");
    check_int(texels[6 * CHANNELS], 6 * CHANNELS, "and the rest");
    driver_launch(paint, 1, 1, NULL, params);
    DRV(cu.StreamSynchronize(NULL));
}

/* ---------------------------------------------------------------- linked code */

static const char count_ptx[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".extern .global .align 4 .u32 rounds;\n"
    ".visible .entry count(.param .u64 out)\n{\n.reg .b32 %r<3>; .reg .b64 %d<2>;\n"
    "ld.param.u64 %d0, [out]; cvta.to.global.u64 %d1, %d0; ld.global.u32 %r0, [rounds];\n"
    "add.u32 %r1, %r0, 1; st.global.u32 [rounds], %r1; st.global.u32 [%d1], %r1; ret;\n}\n";
static const char rounds_ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                                 ".visible .global .align 4 .u32 rounds = 100;\n";
static CUfunction count;

static void hold_linked(void)
{
    CUlinkState link = NULL;
    CUmodule module;
    void *image = NULL;
    size_t bytes = 0;

    DRV(cu.LinkCreate_v2(0, NULL, NULL, &link));
    DRV(cu.LinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)count_ptx, sizeof(count_ptx),
                          "count", 0, NULL, NULL));
    DRV(cu.LinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)rounds_ptx, sizeof(rounds_ptx),
                          "rounds", 0, NULL, NULL));
    DRV(cu.LinkComplete(link, &image, &bytes));
    DRV(cu.ModuleLoadData(&module, image));
    DRV(cu.LinkDestroy(link));
    count = driver_function(module, "count");
    DRV(cu.MemHostAlloc((void **)&result, 4096, 0));
}

static void change_linked(long round)
{
    void *params[] = {&result};

    driver_launch(count, 1, 1, NULL, params);
    DRV(cu.StreamSynchronize(NULL));
    check_int(*result, 101 + round, "a variable in which kernels count");
}

/* ---------------------------------------------------------------- rounds */

static const struct kind {
    const char *name;
    void (*hold)(void);
    void (*change)(long round); /* and compare */
} kinds[] = {{"registered", hold_registered, change_words},
             {"shared", hold_shared, change_words},
             {"host", hold_host, change_words},
             {"array1", hold_array1, change_arrays},
             {"array2", hold_array2, change_arrays},
             {"array3", hold_array3, change_arrays},
             {"layers", hold_layers, change_arrays},
             {"cube", hold_cube, change_arrays},
             {"mipmap", hold_mipmap, change_arrays},
             {"captured", hold_captured, change_captured},
             {"texture", hold_texture, change_texture},
             {"linear", hold_linear, change_linear},
             {"surface", hold_surface, change_surface},
             {"linked", hold_linked, change_linked}};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    check_die("no such kind: %s", name);
}

int main(int argc, char **argv)
{
    const struct kind *kind = find_kind(argc > 1 ? argv[1] : "");
    CUmodule module;
    char line[64];

    vmm_begin("e2e_kinds");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    DRV(cu.ModuleLoadData(&module, texture_ptx));
    sample = driver_function(module, "sample");
    sample_linear = driver_function(module, "sample_linear");
    paint = driver_function(module, "paint");
    kind->hold();
    printf("ready\n");
    for (long round = 0; fgets(line, sizeof(line), stdin); round++) {
        kind->change(round);
        printf("round %ld\n", round);
    }
    return driver_end();
}
