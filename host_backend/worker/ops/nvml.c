/* NVML for guests: the device's values, and the tenant's own processes. */
#include "host_backend/worker/session/nvml.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/about.h"
#include "host_backend/worker/session/platform.h"
#include "host_backend/worker/session/tenant.h"

#include <string.h>

#define PROCESSES_MAX 1024 /* as in proto/api/ops.toml */
#define NAME_BYTES    128

CUresult weir_host_nvml_call(struct weir_session *s, const struct weir_op_nvml_call_in *in,
                             struct weir_op_nvml_call_out *out)
{
    struct weir_nvml_answer *answer = weir_session_alloc(s, sizeof *answer);
    struct weir_nvml_question question = {
        .function = in->function, .data = in->data, .n_data = in->n_data};

    if (answer == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(question.arguments, in->arguments, sizeof question.arguments);
    out->result =
        (int32_t)weir_nvml_ask(s->platform->devices[s->op.device].nvml, &question, answer);
    out->data = answer->data;
    out->n_data = answer->n_data;
    return CUDA_SUCCESS;
}

/* A process is shown once it has a context, as natively; so never one that has only asked. */
static bool is_shown(const struct weir_session *s, const struct weir_tenant *tenant)
{
    return s->tenant == tenant && atomic_load(&s->about->n_contexts) != 0;
}

struct processes {
    uint32_t *pids;
    uint64_t *used;
    char *names; /* one after the other */
    uint32_t n, n_names;
};

static void add(struct processes *all, uint32_t pid, uint64_t used, const char *name)
{
    size_t len = strlen(name);

    if (all->n == PROCESSES_MAX) {
        return;
    }
    if (len > NAME_BYTES - 1) {
        len = NAME_BYTES - 1;
    }
    all->pids[all->n] = pid;
    all->used[all->n++] = used;
    memcpy(all->names + all->n_names, name, len);
    all->names[all->n_names + len] = '\0';
    all->n_names += (uint32_t)len + 1;
}

static void add_ours(struct processes *all, const struct weir_session *s)
{
    for (struct weir_session *other = weir_sessions_lock(s->worker); other != NULL;
         other = other->next) {
        if (is_shown(other, s->tenant)) {
            add(all, other->about->guest_pid, atomic_load(&other->about->held_bytes),
                other->about->program);
        }
    }
    weir_sessions_unlock(s->worker);
}

/* The tenant's programs in other workers. */
static void add_others(struct processes *all, const struct weir_account *account)
{
    char name[WEIR_ACCOUNT_NAME_WORDS * 8];

    for (uint32_t i = 1; account->page != NULL && i <= WEIR_ACCOUNT_USERS; i++) {
        uint32_t place = account->place;
        uint64_t bytes = 0;
        uint32_t pid = weir_account_page_user(account->page, i, &place, &bytes, name);

        if (pid != 0 && place != account->place) {
            add(all, pid, bytes, name);
        }
    }
}

CUresult weir_host_nvml_processes(struct weir_session *s,
                                  const struct weir_op_nvml_processes_in *in,
                                  struct weir_op_nvml_processes_out *out)
{
    struct processes all = {.pids = weir_session_alloc(s, PROCESSES_MAX * sizeof *all.pids),
                            .used = weir_session_alloc(s, PROCESSES_MAX * sizeof *all.used),
                            .names = weir_session_alloc(s, PROCESSES_MAX * NAME_BYTES)};

    (void)in;
    if (all.pids == NULL || all.used == NULL || all.names == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    add_ours(&all, s);
    add_others(&all, &s->tenant->account);
    *out = (struct weir_op_nvml_processes_out){.pids = all.pids,
                                               .n_pids = all.n,
                                               .used_bytes = all.used,
                                               .n_used_bytes = all.n,
                                               .names = all.names,
                                               .n_names = all.n_names};
    return CUDA_SUCCESS;
}
