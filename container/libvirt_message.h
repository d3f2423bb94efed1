/*
 * What weir-libvirt (container/libvirt/) tells the supervisor about domains, over a socket pair
 * (SOCK_SEQPACKET), one struct a packet. The supervisor sends nothing; when it closes its end,
 * weir-libvirt ends.
 *
 * weir-libvirt parses the XML, so that the supervisor never does. The supervisor still checks every
 * text that arrives.
 */
#pragma once

#include <stdint.h>

#define WEIR_LIBVIRT_FD           3 /* descriptor of weir-libvirt's end after exec */
#define WEIR_LIBVIRT_URI          "https://weir.dev/libvirt/1.0"
#define WEIR_LIBVIRT_DOMAIN_BYTES 256
#define WEIR_LIBVIRT_KEY_BYTES    32
#define WEIR_LIBVIRT_VALUE_BYTES  192
#define WEIR_LIBVIRT_SETTINGS_MAX 16

enum weir_libvirt_type {
    WEIR_LIBVIRT_ELEMENT = 1, /* the domain has an element with these settings */
    WEIR_LIBVIRT_NONE,        /* the domain has no such element */
    WEIR_LIBVIRT_BAD,  /* the domain has an element that cannot be read; complaint says why */
    WEIR_LIBVIRT_GONE, /* the domain does not exist any more */
};

/* An attribute, or a child element as "<name>", which no tenant has. */
struct weir_libvirt_setting {
    char key[WEIR_LIBVIRT_KEY_BYTES];
    char value[WEIR_LIBVIRT_VALUE_BYTES];
};

/* A <tenant/> element. Absent fields are zero, so that two can be compared by memcmp(). */
struct weir_libvirt_element {
    char tenant[64]; /* attribute "name"; "": the tenant has the domain's name */
    uint32_t n_settings;
    struct weir_libvirt_setting settings[WEIR_LIBVIRT_SETTINGS_MAX];
};

struct weir_libvirt_message {
    uint32_t type; /* enum weir_libvirt_type */
    char domain[WEIR_LIBVIRT_DOMAIN_BYTES];
    char complaint[200];
    struct weir_libvirt_element element;
};
