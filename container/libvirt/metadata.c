/*
 * Reads the <tenant/> element with libxml2.
 *
 * The author is a user who may edit the domain, not necessarily this host's administrator. So the
 * element must be small and have no document type (and so no entities), and the parser loads no
 * other file.
 */
#include "container/libvirt/metadata.h"

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FAIL(...) (weir_diag_set(diag, 0, 0, __VA_ARGS__), WEIR_ERR_SYNTAX)

static bool has_document_type(const char *text, size_t bytes)
{
    static const char word[] = "<!DOCTYPE";

    return memmem(text, bytes, word, sizeof word - 1) != NULL;
}

/* Only printable ASCII is allowed: keys and values go into logs and into weir.toml's rules. */
static bool is_plain(const char *text)
{
    for (; *text != 0; text++) {
        if (*text < ' ' || *text > '~') {
            return false;
        }
    }
    return true;
}

static enum weir_status add(struct weir_libvirt_element *element, const char *format,
                            const xmlChar *name, const char *value, struct weir_diag *diag)
{
    struct weir_libvirt_setting *s = &element->settings[element->n_settings];

    WEIR_FAIL_IF(element->n_settings == WEIR_LIBVIRT_SETTINGS_MAX,
                 FAIL("more than %d attributes", WEIR_LIBVIRT_SETTINGS_MAX));
    int n = snprintf(s->key, sizeof s->key, format[0] == '<' ? "<%s>" : "%s", (const char *)name);
    WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof s->key || !is_plain(s->key),
                 FAIL("a name is too long, or not plain"));
    WEIR_FAIL_IF(strlen(value) >= sizeof s->value || !is_plain(value),
                 FAIL("attribute '%s' is too long, or not plain", s->key));
    strcpy(s->value, value);
    element->n_settings++;
    return WEIR_OK;
}

static enum weir_status take_attribute(struct weir_libvirt_element *element, xmlNode *node,
                                       const xmlAttr *attribute, char *unit, struct weir_diag *diag)
{
    enum weir_status status = WEIR_OK;

    if (attribute->ns) {
        return WEIR_OK;
    }
    xmlChar *value = xmlNodeListGetString(node->doc, attribute->children, 1);
    const char *text = value ? (const char *)value : "";

    if (strcmp((const char *)attribute->name, "name") == 0) {
        if (*text == 0 || strlen(text) >= sizeof element->tenant || !is_plain(text)) {
            status = FAIL("attribute 'name' is no tenant's name");
        } else {
            strcpy(element->tenant, text);
        }
    } else if (strcmp((const char *)attribute->name, "unit") == 0) {
        if (strlen(text) >= 16 || !is_plain(text)) {
            status = FAIL("attribute 'unit' is no unit");
        } else {
            strcpy(unit, text);
        }
    } else {
        status = add(element, "%s", attribute->name, text, diag);
    }
    xmlFree(value);
    return status;
}

/* Read the unit, an attribute as in libvirt's own <memory unit='MiB'>. */
static enum weir_status put_unit(struct weir_libvirt_element *element, const char *unit,
                                 struct weir_diag *diag)
{
    for (uint32_t i = 0; i < element->n_settings; i++) {
        struct weir_libvirt_setting *s = &element->settings[i];
        size_t n = strlen(s->value);

        if (strcmp(s->key, "memory") == 0) {
            WEIR_FAIL_IF(n + strlen(unit) >= sizeof s->value,
                         FAIL("attribute 'memory' is too long, or not plain"));
            strcpy(s->value + n, unit);
            return WEIR_OK;
        }
    }
    return FAIL("attribute 'unit' without 'memory'");
}

static enum weir_status take_root(struct weir_libvirt_element *element, xmlNode *root,
                                  struct weir_diag *diag)
{
    enum weir_status status = WEIR_OK;
    char unit[16] = "";

    WEIR_FAIL_IF(strcmp((const char *)root->name, "tenant") != 0,
                 FAIL("the element is '%.40s', not 'tenant'", (const char *)root->name));
    for (const xmlAttr *a = root->properties; status == WEIR_OK && a; a = a->next) {
        status = take_attribute(element, root, a, unit, diag);
    }
    for (const xmlNode *n = root->children; status == WEIR_OK && n; n = n->next) {
        if (n->type == XML_ELEMENT_NODE) {
            status = add(element, "<%s>", n->name, "", diag);
        }
    }
    return status == WEIR_OK && unit[0] != 0 ? put_unit(element, unit, diag) : status;
}

enum weir_status weir_metadata_parse(const char *text, size_t bytes,
                                     struct weir_libvirt_element *ret_element,
                                     struct weir_diag *diag)
{
    struct weir_libvirt_element element;
    enum weir_status status;

    memset(&element, 0, sizeof element);
    WEIR_FAIL_IF(
        bytes == 0 || bytes > WEIR_METADATA_MAX_BYTES,
        FAIL("the element has no text, or more than %u KiB", WEIR_METADATA_MAX_BYTES >> 10));
    WEIR_FAIL_IF(has_document_type(text, bytes), FAIL("the element has a document type"));
    /* Force UTF-8, so that no other encoding can hide a document type from the check above. */
    xmlDoc *doc = xmlReadMemory(text, (int)bytes, NULL, "UTF-8",
                                XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
    if (!doc || !xmlDocGetRootElement(doc)) {
        status = FAIL("the element is not well-formed XML");
    } else {
        status = take_root(&element, xmlDocGetRootElement(doc), diag);
    }
    if (doc) {
        xmlFreeDoc(doc);
    }
    if (status == WEIR_OK) {
        *ret_element = element;
    }
    return status;
}
