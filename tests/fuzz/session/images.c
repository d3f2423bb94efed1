/* The images that the guest has. */
#include "tests/fuzz/session/guest.h"

#include "base/hash.h"
#include "proto/wire/bundle.h"
#include <pthread.h>
#include <string.h>

#define PTX_BEGIN ".version 8.0\n.target sm_80\n.address_size 64\n"

static const char kernels[] = PTX_BEGIN
    ".global .align 4 .u32 counter = 5;\n"
    ".global .align 16 .b8 buffer[4096];\n"
    ".const .align 4 .b8 weights[16] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64};\n"
    ".extern .shared .align 16 .b8 room[];\n"
    ".global .align 1 .b8 text[6] = {37, 100, 46, 46, 10, 0};\n"
    ".extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);\n"
    ".visible .entry nothing()\n{\n ret;\n}\n"
    ".visible .entry store(.param .u64 where, .param .u32 what)\n{\n"
    " .reg .b64 %rd<5>;\n .reg .b32 %r<3>;\n"
    " ld.param.u64 %rd1, [where];\n ld.param.u32 %r1, [what];\n and.b64 %rd2, %rd1, 4080;\n"
    " mov.u64 %rd3, buffer;\n add.u64 %rd4, %rd3, %rd2;\n st.global.u32 [%rd4], %r1;\n ret;\n}\n"
    ".visible .entry fault()\n{\n trap;\n ret;\n}\n"
    ".visible .entry count()\n{\n .reg .b32 %r<3>;\n"
    " atom.global.add.u32 %r1, [counter], 1;\n ret;\n}\n"
    ".visible .entry talk()\n{\n .reg .b64 %rd<4>;\n .reg .b32 %r<3>;\n"
    " .local .align 8 .b8 args[8];\n .reg .b64 %SP;\n"
    " mov.u64 %rd1, args;\n cvta.local.u64 %rd1, %rd1;\n mov.u32 %r1, %ctaid.x;\n"
    " st.u32 [%rd1], %r1;\n mov.u64 %rd2, text;\n cvta.global.u64 %rd3, %rd2;\n"
    " {\n .param .b64 p0;\n st.param.b64 [p0], %rd3;\n .param .b64 p1;\n st.param.b64 [p1], %rd1;\n"
    " .param .b32 back;\n call.uni (back), vprintf, (p0, p1);\n ld.param.b32 %r2, [back];\n }\n"
    " ret;\n}\n";

static const char other[] =
    PTX_BEGIN ".visible .entry nothing(.param .u64 a, .param .align 8 .b8 b[40])\n"
              "{\n ret;\n}\n"
              ".visible .global .align 8 .u64 address;\n";
static const char unresolved[] = PTX_BEGIN ".extern .func missing(.param .b32 x);\n"
                                           ".visible .entry lost()\n{\n .param .b32 p;\n"
                                           " call.uni missing, (p);\n ret;\n}\n";
static const char broken[] = PTX_BEGIN ".visible .entry half(.param .u64 x)\n{\n .reg .b32 %r<\n";
static const char empty[] = PTX_BEGIN;
static const char elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7};
static const char nothing[1] = "";
/* A bundle's header, and two parts that are no fat binaries. */
static const uint64_t bundle[16] = {WEIR_BUNDLE_MAGIC, 2, 16, 32};

/* The kernels that do not print: of a program that prints, graphs stay whole. */
static const char quiet[] = PTX_BEGIN ".global .align 4 .u32 counter = 5;\n"
                                      ".visible .entry nothing()\n{\n ret;\n}\n"
                                      ".visible .entry count()\n{\n .reg .b32 %r<3>;\n"
                                      " atom.global.add.u32 %r1, [counter], 1;\n ret;\n}\n";

static struct guest_image images[GUEST_IMAGES + 1] = {{kernels, sizeof kernels, {0}},
                                                      {other, sizeof other - 1, {0}},
                                                      {broken, sizeof broken - 1, {0}},
                                                      {empty, sizeof empty - 1, {0}},
                                                      {elf, sizeof elf, {0}},
                                                      {bundle, sizeof bundle, {0}},
                                                      {unresolved, sizeof unresolved, {0}},
                                                      {nothing, sizeof nothing, {0}},
                                                      {quiet, sizeof quiet, {0}}};

static void hash_images(void)
{
    for (int i = 0; i <= GUEST_QUIET_IMAGE; i++) {
        struct weir_hash hash = weir_hash_of(images[i].data, images[i].bytes);

        memcpy(images[i].hash, hash.bytes, sizeof images[i].hash);
    }
}

const struct guest_image *guest_image(uint32_t index)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, hash_images);
    return &images[index];
}

const char *guest_symbol(uint32_t index)
{
    static const char *const names[] = {"nothing",
                                        "store",
                                        "count",
                                        "talk",
                                        "counter",
                                        "buffer",
                                        "weights",
                                        "address",
                                        "room",
                                        "missing",
                                        "",
                                        "lost",
                                        "nvmlDeviceGetName",
                                        "nvmlDeviceGetMemoryInfo",
                                        "nvmlDeviceGetUtilizationRates",
                                        "text"};

    return names[index % (sizeof names / sizeof names[0])];
}

void guest_upload(struct guest *guest, uint32_t index, struct weir_op_image_put_in *in)
{
    const struct guest_image *image = guest_image(index);

    *in = (struct weir_op_image_put_in){.bytes = image->bytes, .piece_bytes = image->bytes};
    memcpy(in->hash, image->hash, sizeof in->hash);
    memcpy(guest->view.arena, image->data, image->bytes);
}
