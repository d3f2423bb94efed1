/*
 * The region of a virtual machine: one piece of memory that host and guest share, and their only
 * connection. They cannot pass descriptors, use sockets, or wake each other by a futex.
 *
 *     0         struct weir_region_header, one page
 *     4 KiB     slots, one a session: is it open, does the guest's process live
 *     64 KiB    mailboxes: Hello in, Welcome out
 *     1.5 MiB   owners: to which slot each unit belongs, so that a new worker knows what is in use
 *     2 MiB     units of 2 MiB, which the worker allots: segments, pinned and registered memory
 *
 * The host makes it. Either it is a sealed memfd that QEMU gets, and in the guest BAR 2 of an
 * ivshmem-doorbell device; or it lies behind the first unit of a file that QEMU opens as an NVDIMM,
 * and is all of /dev/dax0.0 in the guest. Every process of the guest can write all of it: the guest
 * is one tenant and one domain of trust. Shared segment rules: the host copies once, then checks;
 * it bases decisions on its own memory; the copies here are for the guest and for the next worker.
 *
 * Source: docs/design/kvm.md
 */
#pragma once

#include "base/status.h"
#include <stdint.h>

#define WEIR_REGION_MAGIC   UINT64_C(0x314e474552524957) /* "WIRREGN1" */
#define WEIR_REGION_VERSION 1u

/* What devdax and the GPU's mappings align to. */
#define WEIR_REGION_UNIT_BYTES (UINT64_C(2) << 20)
#define WEIR_REGION_MIN_BYTES  (UINT64_C(62) << 20) /* an NVDIMM of 64 MiB leaves this much */
#define WEIR_REGION_MAX_BYTES  (UINT64_C(64) << 30)

#define WEIR_REGION_CONTROL_BYTES WEIR_REGION_UNIT_BYTES
#define WEIR_REGION_SLOTS_OFFSET  4096u
#define WEIR_REGION_SLOTS         512u
#define WEIR_REGION_MAIL_OFFSET   65536u
#define WEIR_REGION_MAILBOXES     8u
#define WEIR_REGION_MAIL_BYTES    65536u /* largest Hello and largest Welcome */
#define WEIR_REGION_OWNERS_OFFSET (UINT64_C(3) << 19)
#define WEIR_REGION_MAX_UNITS     (WEIR_REGION_MAX_BYTES / WEIR_REGION_UNIT_BYTES)
/* Offset of the doorbell register in BAR 0 (QEMU's ivshmem-spec). */
#define WEIR_REGION_BELL_OFFSET   12u
#define WEIR_REGION_HOST_BELL     0u /* value that the guest writes there: peer 0, vector 0 */
#define WEIR_REGION_BOOT_ID_BYTES 16
#define WEIR_REGION_PCI_VENDOR    0x1af4
#define WEIR_REGION_PCI_DEVICE    0x1110

struct weir_region_header {
    uint64_t magic;
    uint32_t version;
    uint32_t pad0;
    uint64_t bytes;
    uint8_t pad1[40];
    /* Number of the worker that serves the region; 0: none does. Written by the host. */
    uint64_t epoch;
    uint32_t beat; /* the worker increments it while there are sessions */
    uint8_t boot_id[WEIR_REGION_BOOT_ID_BYTES]; /* boot of the guest that the slots belong to;
                                                   written by the host */
    uint8_t pad2[36];
};

struct weir_region_slot {
    uint64_t session; /* written by the host: not 0 while it serves the session */
    uint8_t pad0[24];
    uint32_t guest_beat; /* the guest's process increments it while it lives */
    uint32_t guest_left; /* the guest's process has ended and uses nothing of the slot */
    uint8_t pad1[24];
};

/* The low bits of a mailbox's state; above them is a number that the guest picked. */
#define WEIR_MAIL_FREE    0u
#define WEIR_MAIL_CLAIMED 1u /* a guest writes its Hello */
#define WEIR_MAIL_HELLO   2u /* the Hello is complete */
#define WEIR_MAIL_TAKEN   3u /* the host has read the Hello */
#define WEIR_MAIL_WELCOME 4u /* the Welcome is complete */
#define WEIR_MAIL_MASK    7u

struct weir_region_mailbox {
    uint32_t state;
    uint32_t hello_bytes;
    uint8_t boot_id[WEIR_REGION_BOOT_ID_BYTES]; /* boot id of the guest's kernel */
    uint32_t welcome_bytes;
    uint32_t slot;
    uint64_t segment_offset;
    uint8_t pad[4056];
    uint8_t hello[WEIR_REGION_MAIL_BYTES];
    uint8_t welcome[WEIR_REGION_MAIL_BYTES];
};

_Static_assert(sizeof(struct weir_region_header) == 128, "layout shared with guests");
_Static_assert(sizeof(struct weir_region_slot) == 64, "layout shared with guests");
_Static_assert(sizeof(struct weir_region_mailbox) == 4096 + 2 * 65536, "layout shared with guests");
_Static_assert(WEIR_REGION_SLOTS_OFFSET + WEIR_REGION_SLOTS * sizeof(struct weir_region_slot) <=
                   WEIR_REGION_MAIL_OFFSET,
               "the slots end before the mailboxes");
_Static_assert(WEIR_REGION_MAIL_OFFSET +
                       WEIR_REGION_MAILBOXES * sizeof(struct weir_region_mailbox) <=
                   WEIR_REGION_OWNERS_OFFSET,
               "the mailboxes end before the owners");
_Static_assert(WEIR_REGION_OWNERS_OFFSET + WEIR_REGION_MAX_UNITS * sizeof(uint16_t) <=
                   WEIR_REGION_CONTROL_BYTES,
               "the owners end before the units");

/* Functions that find the pieces of a mapped control part. */
static inline struct weir_region_slot *weir_region_slot(void *control, uint32_t slot)
{
    return (struct weir_region_slot *)(void *)((uint8_t *)control + WEIR_REGION_SLOTS_OFFSET) +
           slot;
}

static inline struct weir_region_mailbox *weir_region_mailbox(void *control, uint32_t box)
{
    return (struct weir_region_mailbox *)(void *)((uint8_t *)control + WEIR_REGION_MAIL_OFFSET) +
           box;
}

/* For each unit its owner's slot + 1; 0: the unit is free. */
static inline uint16_t *weir_region_owners(void *control)
{
    return (uint16_t *)(void *)((uint8_t *)control + WEIR_REGION_OWNERS_OFFSET);
}
