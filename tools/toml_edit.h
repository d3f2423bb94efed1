/*
 * weir.toml edited by a program: a tenant's keys change, everything else stays as its author left
 * it.
 */
#ifndef WEIR_TOOLS_TOML_EDIT_H
#define WEIR_TOOLS_TOML_EDIT_H

#include <stdbool.h>

/**
 * Give a tenant of a configuration text a value.
 *
 * @param text    a configuration that the host has accepted, and weir_toml_editable().
 * @param tenant  gets a [[tenant]] at the end when there is none of this name; the tenant
 * "default", which a text without any has, then gets one, too, and so stays.
 * @param key     of weir.toml; NULL: only see to it that the tenant is there.
 * @param value   without quotes, and without quotes, backslashes and control characters in it; NULL
 *                or "": the key goes.
 * @return the new text, to be freed; NULL: no memory
 */
char *weir_toml_set(const char *text, const char *tenant, const char *key, const char *value);

/** Take a tenant's [[tenant]] out. As above; the text unchanged when there is none. */
char *weir_toml_remove(const char *text, const char *tenant);

/** May it be edited? No where tenants stand in one array: tenant = [{name = "a"}, ...] */
bool weir_toml_editable(const char *text);

/** Is there any? A host without has one tenant, "default". */
bool weir_toml_has_tenants(const char *text);

#endif
