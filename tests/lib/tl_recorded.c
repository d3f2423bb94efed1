#include "tests/lib/tl_recorded.h"

#include "sched/sim/generate.h"
#include "tests/lib/tl_cmocka.h"
#include <sys/mman.h>
#include <unistd.h>

static void on_record(void *user, const struct weir_sched_record *record)
{
    assert_true(weir_sched_trace_put(user, record));
}

void tl_recorded_make(struct tl_recorded *r, const char *spec, const char *policy, uint64_t run_ns)
{
    struct weir_sim_generate_params made = {.seed = 3, .duration_ns = run_ns};
    struct weir_sched_trace_error where;
    struct weir_diag diag;
    char error[256];
    int fd = memfd_create("load", MFD_CLOEXEC), load_fd = dup(fd);
    assert_int_equal(weir_sim_gpu_find("h200", &made.gpu, error), WEIR_OK);
    assert_int_equal(weir_sim_generate(spec, &made, fd, &diag), WEIR_OK);
    uint64_t bytes = (uint64_t)lseek(load_fd, 0, SEEK_END);
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, load_fd, 0);
    assert_int_equal(weir_sim_load_read(data, bytes, false, &r->load, &where), WEIR_OK);
    munmap(data, bytes);
    close(load_fd);
    weir_sim_params_init(&r->params, &r->load, &made.gpu);
    assert_int_equal(weir_policy_set_parse(policy, &r->params.policies, NULL), WEIR_OK);
    r->params.until_ns = run_ns;
    r->params.config.sms = r->params.gpu.sms;
    r->policy = policy;
}

int tl_recorded_run(struct tl_recorded *r, uint32_t flags)
{
    struct weir_sched_trace *trace;
    struct weir_sim_result result;
    char error[256];
    int fd = memfd_create("run", MFD_CLOEXEC), run_fd = dup(fd);
    assert_int_equal(weir_sched_trace_create(&r->params.config, flags, 0, 1u << 18, fd, &trace),
                     WEIR_OK);
    weir_sched_trace_policy(trace, 0, 0, r->policy);
    r->params.watch = (struct weir_sim_watch){.user = trace, .record = on_record};
    assert_int_equal(weir_sim_run(&r->load, &r->params, &result, error), WEIR_OK);
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&r->load);
    return run_fd;
}
