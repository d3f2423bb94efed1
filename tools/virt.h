/* A domain of libvirt, as far as weir attach and weir detach need it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define WEIR_VIRT_LIVE   1u /* VIR_DOMAIN_AFFECT_LIVE */
#define WEIR_VIRT_CONFIG 2u /* VIR_DOMAIN_AFFECT_CONFIG */

struct weir_virt_domain {
    const char *command; /* "attach", for instance: complaints begin with it */
    const char *name;    /* borrowed */
    void *connection;
    void *handle;
    bool active;     /* the domain runs */
    bool persistent; /* the domain is defined */
};

/**
 * Load libvirt, connect, find the domain; complains on stderr.
 *
 * @param uri  of the connection; NULL: libvirt's own choice ($LIBVIRT_DEFAULT_URI).
 * @return false when there is no such domain, or no libvirt.
 */
bool weir_virt_open(struct weir_virt_domain *domain, const char *command, const char *uri,
                    const char *name);
void weir_virt_close(struct weir_virt_domain *domain);

/** The domain's XML, live or as of its next start; to be freed; NULL after a complaint. */
char *weir_virt_xml(struct weir_virt_domain *domain, bool live);

/** Is the machine a q35, whose devices must be there at its start? */
bool weir_virt_is_q35(const char *xml);

/** Add or remove a device; flags: WEIR_VIRT_*. Complains on stderr. */
bool weir_virt_attach(struct weir_virt_domain *domain, const char *xml, unsigned int flags);
bool weir_virt_detach(struct weir_virt_domain *domain, const char *xml, unsigned int flags);

/**
 * Set, or with NULL remove, the domain's <weir:tenant/>. Complains on stderr.
 * @param element  without the namespace: "<tenant weight='300'/>".
 */
bool weir_virt_metadata(struct weir_virt_domain *domain, const char *element, unsigned int flags);

/** The present element, live or of the definition (one WEIR_VIRT_*); to be freed; NULL: none. */
char *weir_virt_metadata_get(struct weir_virt_domain *domain, unsigned int flag);

/** The flags for a change of the domain: both, for a defined one that runs. */
static inline unsigned int weir_virt_flags(const struct weir_virt_domain *domain)
{
    return (domain->active ? WEIR_VIRT_LIVE : 0) | (domain->persistent ? WEIR_VIRT_CONFIG : 0);
}
