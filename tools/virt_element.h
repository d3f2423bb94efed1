/* The <tenant/> element that weir attach keeps in a domain's metadata. */
#pragma once

#include <stddef.h>

/**
 * An element with some attributes new and all others as they were.
 *
 * @param old      what libvirt has, "<tenant weight='300'/>" with any quotes, or NULL: none. Its
 *                 attributes stay only if it is this tenant's.
 * @param machine  the domain's name: the tenant of an element that names none.
 * @param tenant   whose the new one is.
 * @param words    n_words of "key=value" that are new, without characters that XML minds. A new
 *                 memory takes the old one's unit with it.
 * @return to be freed; NULL: out of memory
 * @thread any
 */
char *weir_virt_element(const char *old, const char *machine, const char *tenant,
                        const char (*words)[80], size_t n_words);
