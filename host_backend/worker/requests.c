/* What administrators ask of a worker: see requests.h. */
#include "host_backend/worker/requests.h"

#include "host_backend/worker/session/gates.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 8

static const struct {
    const char *name;
    weir_worker_request_fn handle;
} requests[] = {
#define WEIR_SUP_REQUEST(name, handler)
#define WEIR_WORKER_REQUEST(name, handler) {name, handler},
#include "host_backend/config/requests.def"
#undef WEIR_SUP_REQUEST
#undef WEIR_WORKER_REQUEST
};

void weir_worker_request(struct weir_worker *worker, int link, struct weir_link_text *request,
                         int *fd)
{
    struct weir_link_message message = {.type = WEIR_LINK_ANSWER};
    char *words[WORDS_MAX], *rest = NULL, *word;
    size_t n = 0;

    request->text[sizeof request->text - 1] = 0;
    message.text.client = request->client;
    word = strtok_r(request->text, "\t", &rest);
    while (word != NULL && n < WORDS_MAX) {
        words[n++] = word;
        word = strtok_r(NULL, "\t", &rest);
    }
    for (size_t i = 0; n != 0 && i < sizeof requests / sizeof requests[0]; i++) {
        if (strcmp(requests[i].name, words[0]) == 0) {
            requests[i].handle(worker, words, n, fd, message.text.text, sizeof message.text.text);
        }
    }
    (void)!weir_link_send(link, &message, -1); /* a lost link is seen by receive */
}

/* trace start DEVICE, with a file; trace stop */
void weir_worker_trace_request(struct weir_worker *worker, char **words, size_t n_words, int *fd,
                               char *answer, size_t answer_bytes)
{
    unsigned long device;
    char *end;

    if (n_words == 2 && strcmp(words[1], "stop") == 0) {
        weir_gates_trace_stop(worker, answer, answer_bytes);
        return;
    }
    device = n_words == 3 ? strtoul(words[2], &end, 10) : 0;
    if (n_words != 3 || strcmp(words[1], "start") != 0 || words[2][0] < '0' || words[2][0] > '9' ||
        *end != 0 || *fd < 0) {
        snprintf(answer, answer_bytes, "error: start, a device and a file are wanted, or stop");
        return;
    }
    weir_gates_trace_start(worker, device, *fd, answer, answer_bytes);
    *fd = -1;
}
