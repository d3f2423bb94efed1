/*
 * Each request has a libcurl handle of its own, since requests are rare. Each reads the service
 * account's token anew, because Kubernetes renews it in its file.
 */
#include "kubernetes/api.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"
/* kubelet allows 45 s for a call: enough to ask again if a server does not answer in 10. */
#define TIMEOUT_S  10L
#define ANSWER_MAX (8u << 20)
#define TOKEN_MAX  16384

/* A request in progress. */
struct request {
    CURL *curl;
    struct curl_slist *headers;
    char url[1024];
    char *answer; /* the answer so far; for a watch, the part after the last whole line */
    size_t bytes;
    /* of a watch: */
    weir_api_event_fn event;
    bool (*wants_on)(void *user);
    void *user;
    bool enough;
};

bool weir_api_open(struct weir_api *api)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");

    if (!api->server && host && port) {
        snprintf(api->own_server, sizeof api->own_server,
                 strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
        api->server = api->own_server;
        api->ca = api->ca ? api->ca : ACCOUNT "ca.crt";
        api->token = api->token ? api->token : ACCOUNT "token";
    }
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK && api->server;
}

static bool append(struct request *r, const char *data, size_t bytes)
{
    char *bigger = bytes <= ANSWER_MAX - r->bytes ? realloc(r->answer, r->bytes + bytes + 1) : NULL;

    if (bigger) {
        r->answer = bigger;
        memcpy(r->answer + r->bytes, data, bytes);
        r->bytes += bytes;
        r->answer[r->bytes] = 0;
    }
    return bigger;
}

static size_t on_answer(char *data, size_t size, size_t n, void *user)
{
    return append(user, data, size * n) ? size * n : 0;
}

static void add_token(struct request *r, const char *path)
{
    char line[TOKEN_MAX + 32] = "Authorization: Bearer ";
    size_t at = strlen(line);
    FILE *file = fopen(path, "re");

    if (file) {
        at += fread(line + at, 1, TOKEN_MAX, file);
        line[at] = 0;
        line[strcspn(line, "\r\n")] = 0;
        r->headers = curl_slist_append(r->headers, line);
        fclose(file);
    }
    explicit_bzero(line, sizeof line);
}

static bool begin(const struct weir_api *api, struct request *r, const char *path)
{
    int n = snprintf(r->url, sizeof r->url, "%s%s", api->server, path);

    r->curl = n > 0 && (size_t)n < sizeof r->url ? curl_easy_init() : NULL;
    WEIR_FAIL_IF(!r->curl, false);
    r->headers = curl_slist_append(NULL, "Content-Type: application/json");
    r->headers = curl_slist_append(r->headers, "Accept: application/json");
    if (api->token) {
        add_token(r, api->token);
    }
    curl_easy_setopt(r->curl, CURLOPT_URL, r->url);
    curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(r->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, r->headers);
    curl_easy_setopt(r->curl, CURLOPT_CONNECTTIMEOUT, TIMEOUT_S);
    if (api->ca) {
        curl_easy_setopt(r->curl, CURLOPT_CAINFO, api->ca);
    }
    return true;
}

static void finish(struct request *r)
{
    curl_slist_free_all(r->headers);
    curl_easy_cleanup(r->curl);
    free(r->answer);
}

static void explain(CURLcode result, long code, const json_t *answer, struct weir_diag *diag)
{
    const char *message = json_string_value(json_object_get(answer, "message"));

    if (result != CURLE_OK) {
        weir_diag_set(diag, 0, 0, "the API server does not answer: %.120s",
                      curl_easy_strerror(result));
    } else {
        weir_diag_set(diag, 0, 0, "the API server says %ld: %.140s", code, message ? message : "");
    }
}

bool weir_api_ask(const struct weir_api *api, const char *method, const char *path,
                  const json_t *body, json_t **ret_json, long *ret_code, struct weir_diag *diag)
{
    struct request r = {0};
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    CURLcode result = CURLE_OUT_OF_MEMORY;

    *ret_json = NULL;
    *ret_code = 0;
    if (begin(api, &r, path)) {
        curl_easy_setopt(r.curl, CURLOPT_CUSTOMREQUEST, method);
        curl_easy_setopt(r.curl, CURLOPT_TIMEOUT, TIMEOUT_S);
        curl_easy_setopt(r.curl, CURLOPT_WRITEFUNCTION, on_answer);
        curl_easy_setopt(r.curl, CURLOPT_WRITEDATA, &r);
        if (text) {
            curl_easy_setopt(r.curl, CURLOPT_POSTFIELDS, text);
        }
        result = curl_easy_perform(r.curl);
    }
    if (result == CURLE_OK) {
        curl_easy_getinfo(r.curl, CURLINFO_RESPONSE_CODE, ret_code);
        *ret_json = r.answer ? json_loads(r.answer, JSON_REJECT_DUPLICATES, NULL) : NULL;
    }
    bool good = result == CURLE_OK && *ret_code >= 200 && *ret_code < 300;
    if (!good) {
        explain(result, *ret_code, *ret_json, diag);
    }
    finish(&r);
    free(text);
    return good;
}

/* ---------------------------------------------------------------- watches */

/* Take the events that have arrived completely; each is a line. */
static void take_events(struct request *r)
{
    char *end;

    while (!r->enough && r->answer && (end = strchr(r->answer, '\n'))) {
        size_t line = (size_t)(end - r->answer) + 1;

        *end = 0;
        json_t *event = json_loads(r->answer, 0, NULL);
        const char *type = json_string_value(json_object_get(event, "type"));
        r->enough = !type || !r->event(r->user, type, json_object_get(event, "object"));
        json_decref(event);
        memmove(r->answer, r->answer + line, r->bytes - line + 1);
        r->bytes -= line;
    }
}

static size_t on_events(char *data, size_t size, size_t n, void *user)
{
    struct request *r = user;

    if (!append(r, data, size * n)) {
        return 0;
    }
    take_events(r);
    return r->enough ? 0 : size * n; /* 0 ends the transfer */
}

static int on_second(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct request *r = user;

    (void)a;
    (void)b;
    (void)c;
    (void)d;
    r->enough |= !r->wants_on(r->user);
    return r->enough;
}

bool weir_api_watch(const struct weir_api *api, const char *path, weir_api_event_fn event,
                    bool (*wants_on)(void *user), void *user)
{
    struct request r = {.event = event, .wants_on = wants_on, .user = user};
    CURLcode result = CURLE_OUT_OF_MEMORY;
    long code = 0;

    if (begin(api, &r, path)) {
        curl_easy_setopt(r.curl, CURLOPT_WRITEFUNCTION, on_events);
        curl_easy_setopt(r.curl, CURLOPT_WRITEDATA, &r);
        curl_easy_setopt(r.curl, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(r.curl, CURLOPT_XFERINFOFUNCTION, on_second);
        curl_easy_setopt(r.curl, CURLOPT_XFERINFODATA, &r);
        result = curl_easy_perform(r.curl);
        curl_easy_getinfo(r.curl, CURLINFO_RESPONSE_CODE, &code);
    }
    finish(&r);
    return r.enough || (result == CURLE_OK && code == 200);
}
