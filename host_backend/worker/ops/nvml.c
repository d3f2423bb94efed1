/* NVML for guests: the device's values, and the tenant's own processes. */
#include "host_backend/worker/session/nvml.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/about.h"
#include "host_backend/worker/session/platform.h"

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
    out->result = (int32_t)weir_nvml_ask(s->platform->devices[s->device].nvml, &question, answer);
    out->data = answer->data;
    out->n_data = answer->n_data;
    return CUDA_SUCCESS;
}

/* A process is shown once it has a context, as natively; so never one that has only asked. */
static bool is_shown(const struct weir_session *s, const struct weir_tenant *tenant)
{
    return s->tenant == tenant && atomic_load(&s->about->n_contexts) != 0;
}

CUresult weir_host_nvml_processes(struct weir_session *s,
                                  const struct weir_op_nvml_processes_in *in,
                                  struct weir_op_nvml_processes_out *out)
{
    uint32_t *pids = weir_session_alloc(s, PROCESSES_MAX * sizeof *pids);
    uint64_t *used = weir_session_alloc(s, PROCESSES_MAX * sizeof *used);
    char *names = weir_session_alloc(s, PROCESSES_MAX * NAME_BYTES);
    uint32_t n = 0, n_names = 0;

    (void)in;
    if (pids == NULL || used == NULL || names == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (struct weir_session *other = weir_sessions_lock(s->worker);
         other != NULL && n < PROCESSES_MAX; other = other->next) {
        if (!is_shown(other, s->tenant)) {
            continue;
        }
        size_t len = strnlen(other->about->program, NAME_BYTES - 1);

        pids[n] = other->about->guest_pid;
        used[n] = atomic_load(&other->about->held_bytes);
        memcpy(names + n_names, other->about->program, len);
        names[n_names + len] = '\0';
        n_names += (uint32_t)len + 1;
        n++;
    }
    weir_sessions_unlock(s->worker);
    *out = (struct weir_op_nvml_processes_out){.pids = pids,
                                               .n_pids = n,
                                               .used_bytes = used,
                                               .n_used_bytes = n,
                                               .names = names,
                                               .n_names = n_names};
    return CUDA_SUCCESS;
}
