/*
 * Sends a worker's questions to the supervisor's directory, and receives the answers.
 *
 * A question lies on the stack of the session's thread that asks and waits. The main thread reads
 * the answers, in whatever order they come, and never waits for a session. So a session only waits
 * for the supervisor, which answers at once, and no thread waits for the session.
 */
#include "host_backend/worker/memory/directory.h"

#include "base/log.h"
#include "base/thread.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

struct question {
    struct question *next;
    struct weir_link_entry *entry; /* the question, then the answer */
    uint32_t type;
    int sent_fd; /* went with it; borrowed; or -1 */
    int fd;
    bool is_answered;
};

struct weir_directory {
    int link;             /* descriptor of the supervisor's link; borrowed; immutable */
    int watch_fd;         /* immutable */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t answered;
    struct question *questions;
    uint64_t last_question;
    uint64_t asked_before; /* last_question when another supervisor came */
    bool is_closed;
};

struct weir_directory *weir_directory_create(int link)
{
    struct weir_directory *directory = calloc(1, sizeof *directory);

    WEIR_FAIL_IF(!directory, NULL);
    directory->link = link;
    directory->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (directory->watch_fd < 0) {
        free(directory);
        return NULL;
    }
    pthread_mutex_init(&directory->lock, NULL);
    pthread_cond_init(&directory->answered, NULL);
    return directory;
}

void weir_directory_destroy(struct weir_directory *directory)
{
    if (directory) {
        close(directory->watch_fd);
        pthread_cond_destroy(&directory->answered);
        pthread_mutex_destroy(&directory->lock);
        free(directory);
    }
}

int weir_directory_watch_fd(const struct weir_worker *worker)
{
    return weir_worker_directory(worker)->watch_fd;
}

bool weir_directory_is_used(const struct weir_tenant *tenant)
{
    return tenant->has_others;
}

bool weir_directory_new_key(uint8_t ret_key[WEIR_ENTRY_KEY_BYTES])
{
    return getrandom(ret_key, WEIR_ENTRY_KEY_BYTES, 0) == WEIR_ENTRY_KEY_BYTES;
}

static void forget_locked(struct weir_directory *d, const struct question *question)
{
    WEIR_UNLINK(d->questions, question, next);
}

/* Send a question and wait for the answer. false: no answer will come. */
static bool ask(struct weir_tenant *tenant, uint32_t type, struct question *question, int fd)
{
    struct weir_directory *d = weir_worker_directory(tenant->worker);
    struct weir_link_message message = {.type = type};

    pthread_mutex_lock(&d->lock);
    question->entry->question = ++d->last_question;
    question->entry->tenant_index = tenant->index;
    message.entry = *question->entry;
    question->type = type;
    question->sent_fd = fd;
    WEIR_PUSH(d->questions, question);
    pthread_mutex_unlock(&d->lock);

    bool is_sent = weir_link_send(d->link, &message, fd) == WEIR_OK;

    pthread_mutex_lock(&d->lock);
    while (is_sent && !question->is_answered && !d->is_closed) {
        pthread_cond_wait(&d->answered, &d->lock);
    }
    forget_locked(d, question);
    pthread_mutex_unlock(&d->lock);
    return question->is_answered;
}

void weir_directory_resume(struct weir_worker *worker, bool ask_again)
{
    struct weir_directory *d = weir_worker_directory(worker);

    WEIR_LOCKED(&d->lock);
    for (const struct question *q = d->questions; q && ask_again; q = q->next) {
        if (!q->is_answered && q->entry->question <= d->asked_before) {
            const struct weir_link_message message = {.type = q->type, .entry = *q->entry};

            (void)!weir_link_send(d->link, &message, q->sent_fd);
        }
    }
    d->asked_before = d->last_question;
}

CUresult weir_directory_publish(struct weir_tenant *tenant, const struct weir_link_entry *entry,
                                int fd)
{
    struct weir_link_entry asked = *entry;
    struct question question = {.entry = &asked, .fd = -1};

    WEIR_FAIL_IF(!ask(tenant, WEIR_LINK_PUBLISH, &question, fd), CUDA_ERROR_DEVICE_UNAVAILABLE);
    if (asked.status != WEIR_OK) {
        weir_log_warn("directory: the tenant cannot share more between its programs tenant=%s "
                      "why=\"%s\"",
                      tenant->name, weir_status_text((enum weir_status)asked.status));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult result_of(int32_t status)
{
    switch (status) {
    case WEIR_OK:
        return CUDA_SUCCESS;
    case WEIR_ERR_QUOTA:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool has_descriptor(uint32_t kind)
{
    return kind == WEIR_ENTRY_MEMORY || kind == WEIR_ENTRY_DESCRIPTOR;
}

/* The key of the memory that the answer is about. */
static const uint8_t *memory_of(const struct weir_link_entry *entry)
{
    return entry->kind == WEIR_ENTRY_DESCRIPTOR ? entry->value : entry->key;
}

CUresult weir_directory_find(struct weir_tenant *tenant, struct weir_link_entry *entry, int *ret_fd)
{
    struct question question = {.entry = entry, .fd = -1};

    WEIR_FAIL_IF(!ask(tenant, WEIR_LINK_FIND, &question, -1), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CUresult result = result_of(entry->status);
    if (result == CUDA_SUCCESS && has_descriptor(entry->kind) && question.fd < 0) {
        weir_directory_withdraw(tenant, WEIR_ENTRY_MEMORY, memory_of(entry));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_fd = question.fd;
    return result;
}

void weir_directory_withdraw(struct weir_tenant *tenant, enum weir_entry_kind kind,
                             const uint8_t key[WEIR_ENTRY_KEY_BYTES])
{
    struct weir_link_message message = {.type = WEIR_LINK_WITHDRAW,
                                        .entry = {.kind = kind, .tenant_index = tenant->index}};

    memcpy(message.entry.key, key, sizeof message.entry.key);
    /* Receiving will show a lost link. */
    (void)!weir_link_send(weir_worker_directory(tenant->worker)->link, &message, -1);
}

void weir_directory_answered(struct weir_worker *worker, const struct weir_link_entry *entry,
                             int fd)
{
    struct weir_directory *d = weir_worker_directory(worker);
    struct question *question;

    pthread_mutex_lock(&d->lock);
    for (question = d->questions; question; question = question->next) {
        if (question->entry->question == entry->question && !question->is_answered) {
            *question->entry = *entry;
            question->fd = fd;
            question->is_answered = true;
            pthread_cond_broadcast(&d->answered);
            break;
        }
    }
    pthread_mutex_unlock(&d->lock);
    if (!question && fd >= 0) {
        close(fd);
    }
}

void weir_directory_close(struct weir_worker *worker)
{
    struct weir_directory *d = weir_worker_directory(worker);

    WEIR_LOCKED(&d->lock);
    d->is_closed = true;
    pthread_cond_broadcast(&d->answered);
}
