/*
 * A kernel that launches kernels needs code that nvlink has linked. A program with such code has a
 * section __nv_relfatbin, and nvlink's cubins are in .nv_fatbin, by default uncompressed. nvlink
 * keeps only code that is used, so if a cubin names the driver's function for such launches, the
 * program uses it. Seen in programs built by nvcc 13.0.
 */
#include "guest_lib/device_launch.h"

#include "base/fd.h"
#include "base/status.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FATBIN_MAGIC 0xba55ed50u
#define KIND_CUBIN   2u
#define COMPRESSED   0xa000u       /* compression flags of an entry: LZ4 0x2000, zstd 0x8000 */
#define READ_MAX     (64ull << 20) /* of a table */
/* The full name is __cuda_syscall_cnpv2LaunchDeviceV2. */
#define SYSCALL_PREFIX "__cuda_syscall_cnp"
#define SYSCALL_LAUNCH "LaunchDevice"

struct fatbin {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; /* number of bytes behind the header */
};

struct fatbin_entry {
    uint16_t kind;
    uint16_t unknown_2;
    uint32_t header_bytes;
    uint64_t bytes; /* number of bytes behind the header */
    uint64_t unknown_16[3];
    uint64_t flags;
};

struct part {
    uint64_t at, bytes;
};

static bool read_at(int fd, uint64_t at, void *to, size_t bytes)
{
    return at <= INT64_MAX && pread(fd, to, bytes, (off_t)at) == (ssize_t)bytes;
}

/* Read a part of the file and put a NUL behind it. @return memory to be freed, or NULL */
static void *read_new(int fd, struct part part)
{
    char *bytes = part.bytes != 0 && part.bytes <= READ_MAX ? malloc(part.bytes + 1) : NULL;
    if (bytes && !read_at(fd, part.at, bytes, part.bytes)) {
        free(bytes);
        return NULL;
    }
    if (bytes) {
        bytes[part.bytes] = '\0';
    }
    return bytes;
}

/* Find a section of the ELF file that begins at base. */
static bool find_section(int fd, uint64_t base, const char *name, struct part *ret_part)
{
    Elf64_Ehdr elf;
    bool found = false;
    if (!read_at(fd, base, &elf, sizeof elf) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
        elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_shentsize != sizeof(Elf64_Shdr) ||
        elf.e_shstrndx >= elf.e_shnum) {
        return false;
    }
    Elf64_Shdr *sections =
        read_new(fd, (struct part){base + elf.e_shoff, elf.e_shnum * sizeof(Elf64_Shdr)});
    WEIR_FAIL_IF(!sections, false);
    uint64_t names_bytes = sections[elf.e_shstrndx].sh_size;
    char *names =
        read_new(fd, (struct part){base + sections[elf.e_shstrndx].sh_offset, names_bytes});
    for (int i = 0; names && !found && i < elf.e_shnum; i++) {
        found = sections[i].sh_name < names_bytes && strcmp(names + sections[i].sh_name, name) == 0;
        *ret_part = (struct part){base + sections[i].sh_offset, sections[i].sh_size};
    }
    free(names);
    free(sections);
    return found;
}

static bool cubin_launches(int fd, uint64_t at)
{
    struct part part;
    char *names = find_section(fd, at, ".strtab", &part) ? read_new(fd, part) : NULL;
    bool launches = false;
    for (char *name = names; name && !launches && name < names + part.bytes;
         name += strlen(name) + 1) {
        launches = strncmp(name, SYSCALL_PREFIX, strlen(SYSCALL_PREFIX)) == 0 &&
                   strstr(name, SYSCALL_LAUNCH);
    }
    free(names);
    return launches;
}

static bool fatbin_launches(int fd, struct part entries)
{
    struct fatbin_entry entry;
    bool launches = false;
    for (uint64_t at = entries.at, end = at + entries.bytes;
         !launches && at < end && read_at(fd, at, &entry, sizeof entry) &&
         entry.header_bytes >= sizeof entry && entry.bytes <= end - at;
         at += entry.header_bytes + entry.bytes) {
        launches = entry.kind == KIND_CUBIN && !(entry.flags & COMPRESSED) &&
                   cubin_launches(fd, at + entry.header_bytes);
    }
    return launches;
}

static bool file_launches(int fd)
{
    struct part part;
    struct fatbin head;
    bool launches = false;
    if (!find_section(fd, 0, "__nv_relfatbin", &part) ||
        !find_section(fd, 0, ".nv_fatbin", &part)) {
        return false;
    }
    for (uint64_t at = part.at, end = at + part.bytes;
         !launches && at < end && read_at(fd, at, &head, sizeof head) &&
         head.magic == FATBIN_MAGIC && head.header_bytes >= sizeof head && head.bytes <= end - at;
         at += head.header_bytes + head.bytes) {
        launches = fatbin_launches(fd, (struct part){at + head.header_bytes, head.bytes});
    }
    return launches;
}

bool weir_device_launch_is_in(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool launches = fd >= 0 && file_launches(fd);
    weir_fd_close(fd);
    return launches;
}
