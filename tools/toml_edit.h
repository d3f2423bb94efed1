/* Edits weir.toml: changes a tenant's keys and leaves everything else as its author wrote it. */
#pragma once

#include <stdbool.h>

/**
 * Give a tenant of a configuration text a value.
 *
 * @param text    a configuration that the host has accepted, and weir_toml_editable().
 * @param tenant  gets a [[tenant]] at the end when there is none of this name; the tenant
 * "default", which a text without any has, then gets one, too, and so stays.
 * @param key of weir.toml; NULL: only make sure that the tenant exists.
 * @param value   without quotes, and without quotes, backslashes and control characters in it; NULL
 *                or "": remove the key.
 * @return the new text, to be freed; NULL: no memory
 */
char *weir_toml_set(const char *text, const char *tenant, const char *key, const char *value);

/** Remove a tenant's [[tenant]] from a text, as above; the text is unchanged if there is none. */
char *weir_toml_remove(const char *text, const char *tenant);

/** May the text be edited? Not if its tenants stand in one array: tenant = [{name = "a"}, ...] */
bool weir_toml_editable(const char *text);

/** Does the text have any tenant? A host without one has the tenant "default". */
bool weir_toml_has_tenants(const char *text);
