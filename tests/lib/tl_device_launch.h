/*
 * What nvlink leaves in a program whose kernels launch kernels, as far as Weir looks at it: a
 * section __nv_relfatbin, and in .nv_fatbin a fat binary with a cubin that names the driver's
 * function for that. Whoever includes it is such a program.
 */
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#define TL_SECTION_NAMES "\0.shstrtab\0.strtab"
#define TL_SYMBOL        "__cuda_syscall_cnpv2LaunchDeviceV2"

struct tl_cubin {
    Elf64_Ehdr elf;
    Elf64_Shdr sections[3];
    char section_names[sizeof TL_SECTION_NAMES];
    char names[64];
};

struct tl_fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
    uint16_t kind, unknown_2;
    uint32_t entry_header_bytes;
    uint64_t entry_bytes;
    uint64_t unknown_16[3];
    uint64_t flags;
    uint64_t unknown_48[2];
    struct tl_cubin cubin;
};

static const struct tl_fatbin tl_device_launch
    __attribute__((used, section(".nv_fatbin"), aligned(8))) = {
        .magic = 0xba55ed50u,
        .version = 1,
        .header_bytes = 16,
        .bytes = sizeof(struct tl_fatbin) - 16,
        .kind = 2,
        .entry_header_bytes = 64,
        .entry_bytes = sizeof(struct tl_cubin),
        .flags = 0x11,
        .cubin = {.elf = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
                          .e_shoff = offsetof(struct tl_cubin, sections),
                          .e_shentsize = sizeof(Elf64_Shdr),
                          .e_shnum = 3,
                          .e_shstrndx = 1},
                  .sections = {[1] = {.sh_name = 1,
                                      .sh_type = SHT_STRTAB,
                                      .sh_offset = offsetof(struct tl_cubin, section_names),
                                      .sh_size = sizeof TL_SECTION_NAMES},
                               [2] = {.sh_name = 11,
                                      .sh_type = SHT_STRTAB,
                                      .sh_offset = offsetof(struct tl_cubin, names),
                                      .sh_size = sizeof(char[64])}},
                  .section_names = TL_SECTION_NAMES,
                  .names = "\0a_kernel\0" TL_SYMBOL}};

static const char tl_relocatable __attribute__((used, section("__nv_relfatbin"))) = 1;
