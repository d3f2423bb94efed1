/* NVML for guests: the device's values, and the tenant's own processes. */
#include "host_backend/worker/device/nvml.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"

#include <string.h>
#include <strings.h>

#define PROCESSES_MAX 1024 /* the limit of proto/api/ops.toml */
#define NAME_BYTES    128

/* Is this the PCI address of one of the worker's devices? Its tenant has all of them. */
static bool is_own_device(const struct weir_session *s, const char *bus_id)
{
    const char *short_id = strchr(bus_id, ':'); /* the PCI domain may have four digits or eight */

    for (uint32_t i = 0; short_id && i < s->platform->n_devices; i++) {
        const char *own = strchr(s->platform->devices[i].about.pci_bus_id, ':');

        if (own && strcasecmp(own, short_id) == 0) {
            return true;
        }
    }
    return false;
}

/* Hide the other end of a link if it is not a device of the tenant, as in a virtual machine that
 * does not see it. NCCL takes that for a switch. */
static void hide_remote(const struct weir_session *s, const char *function,
                        struct weir_nvml_answer *answer)
{
    static const char hidden[] = "fffffff:ffff:ff";
    nvmlPciInfo_t *pci = (nvmlPciInfo_t *)(void *)answer->data;

    if (strncmp(function, "nvmlDeviceGetNvLinkRemotePciInfo",
                strlen("nvmlDeviceGetNvLinkRemotePciInfo")) != 0 ||
        answer->n_data != sizeof *pci) {
        return;
    }
    pci->busId[sizeof pci->busId - 1] = '\0';
    if (!is_own_device(s, pci->busId)) {
        memset(pci, 0xff, sizeof *pci);
        memset(pci->busId, 0, sizeof pci->busId);
        memcpy(pci->busId, hidden, sizeof hidden);
        memcpy(pci->busIdLegacy, hidden, sizeof hidden);
    }
}

CUresult weir_host_nvml_call(struct weir_session *s, const struct weir_op_nvml_call_in *in,
                             struct weir_op_nvml_call_out *out)
{
    struct weir_nvml_answer *answer = weir_session_alloc(s, sizeof *answer);
    struct weir_nvml_question question = {
        .function = in->function, .data = in->data, .n_data = in->n_data};

    WEIR_FAIL_IF(!answer, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(question.arguments, in->arguments, sizeof question.arguments);
    if (in->arguments[0] < s->platform->n_devices &&
        strcmp(in->function, "nvmlDeviceGetTopologyCommonAncestor") == 0) {
        question.peer = &s->platform->devices[in->arguments[0]].about;
    }
    out->result =
        (int32_t)weir_nvml_ask(s->platform->devices[s->op.device].nvml, &question, answer);
    hide_remote(s, question.function, answer);
    out->data = answer->data;
    out->n_data = answer->n_data;
    return CUDA_SUCCESS;
}

struct processes {
    uint32_t *pids;
    uint64_t *used;
    char *names; /* names, each with its NUL, one after the other */
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

/* Add programs. As natively, a process is listed once it has a context, not if it has only
 * asked. */
static void add_programs(struct processes *all, struct weir_tenant *tenant)
{
    struct weir_program program;

    (void)weir_tenant_endings(tenant);
    for (uint32_t i = 1; i <= weir_programs_last(tenant->programs); i++) {
        if (weir_programs_get(tenant->programs, i, &program) && program.pid != 0 &&
            !program.ended) {
            add(all, program.pid, program.bytes, program.name);
        }
    }
}

CUresult weir_host_nvml_processes(struct weir_session *s, struct weir_op_nvml_processes_out *out)
{
    struct processes all = {.pids = weir_session_alloc(s, PROCESSES_MAX * sizeof *all.pids),
                            .used = weir_session_alloc(s, PROCESSES_MAX * sizeof *all.used),
                            .names = weir_session_alloc(s, PROCESSES_MAX * NAME_BYTES)};

    WEIR_FAIL_IF(!all.pids || !all.used || !all.names, CUDA_ERROR_OUT_OF_MEMORY);
    add_programs(&all, s->tenant);
    *out = (struct weir_op_nvml_processes_out){.pids = all.pids,
                                               .n_pids = all.n,
                                               .used_bytes = all.used,
                                               .n_used_bytes = all.n,
                                               .names = all.names,
                                               .n_names = all.n_names};
    return CUDA_SUCCESS;
}
