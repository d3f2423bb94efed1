/* Kubernetes' API server, as far as a driver needs it: JSON by libcurl. */
#pragma once

#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>

/* How to reach the API server. Strings are borrowed; immutable after weir_api_open(). */
struct weir_api {
    const char *server; /* "https://10.96.0.1:443" */
    const char *ca;     /* path; NULL: the machine's certificates */
    const char *token;  /* path of a file that is read for each request; NULL: none */
    char own_server[128];
};

/**
 * Fill in the members that are not set from the pod's service account, if this runs in a pod.
 * @return false: no server is known
 * @thread main, before any request: sets up libcurl
 */
bool weir_api_open(struct weir_api *api);

/**
 * Make a request.
 * @param body      sent as JSON; NULL: none.
 * @param ret_json  owned by the caller, also after an error; NULL if the answer has no JSON.
 * @param ret_code  HTTP's status; 0: nobody answered.
 * @param diag      where the code is not 2xx: the server's message, or why nobody answered.
 * @return is the code 2xx?
 * @thread any
 */
bool weir_api_ask(const struct weir_api *api, const char *method, const char *path,
                  const json_t *body, json_t **ret_json, long *ret_code, struct weir_diag *diag);

/** An event of a watch. @return false: the caller wants no more */
typedef bool (*weir_api_event_fn)(void *user, const char *type, const json_t *object);

/**
 * Watch objects until the server ends the watch, `wants_on` returns false, or `event` does.
 * @param path      with its query.
 * @param wants_on  asked once a second at least.
 * @return false: the server refused the watch, or is gone
 * @thread any
 */
bool weir_api_watch(const struct weir_api *api, const char *path, weir_api_event_fn event,
                    bool (*wants_on)(void *user), void *user);
