/*
 * The claims that are prepared on this node: a file for each, written before its tenant is made, so
 * that no end of the driver loses one.
 *
 *   <folder>/UID.json   a record (plan.h)
 */
#ifndef WEIR_KUBERNETES_RECORDS_H
#define WEIR_KUBERNETES_RECORDS_H

#include <jansson.h>
#include <stdbool.h>

/** A claim's record, owned by the caller; NULL: there is none, or its file makes no sense. @thread
 * any */
json_t *weir_records_get(const char *folder, const char *uid);
/** Write a record. @return false: it cannot be written @thread any, one for each claim at a time */
bool weir_records_put(const char *folder, const json_t *record);
/** Remove a record, if there is one. @return false: it is still there @thread any */
bool weir_records_remove(const char *folder, const char *uid);
/** All uids, as an array of strings; owned by the caller. @thread any */
json_t *weir_records_list(const char *folder);

#endif
