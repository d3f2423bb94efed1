/* What administrators ask of a worker: the rows of requests.def that are the workers'. */
#ifndef WEIR_HOST_BACKEND_WORKER_REQUESTS_H
#define WEIR_HOST_BACKEND_WORKER_REQUESTS_H

#include "host_backend/config/link.h"

struct weir_worker;

/**
 * @param words   of the request, its name first.
 * @param fd      the descriptor that came with it, or -1; who keeps it sets it to -1.
 * @param answer  "" at first; what came of it, "error: ..." when nothing was done.
 * @thread main
 */
typedef void (*weir_worker_request_fn)(struct weir_worker *worker, char **words, size_t n_words,
                                       int *fd, char *answer, size_t answer_bytes);

#define WEIR_SUP_REQUEST(name, handler)
#define WEIR_WORKER_REQUEST(name, handler)                                                         \
    void handler(struct weir_worker *worker, char **words, size_t n_words, int *fd, char *answer,  \
                 size_t answer_bytes);
#include "host_backend/config/requests.def"
#undef WEIR_SUP_REQUEST
#undef WEIR_WORKER_REQUEST

/** Do what a message asks for, and answer it. @thread main */
void weir_worker_request(struct weir_worker *worker, int link, struct weir_link_text *request,
                         int *fd);

#endif
