/*
 * weir_spank.so: a job's share of the node's GPU, as options of srun, sbatch and salloc.
 *
 * Where the hooks run, and what each does (Slurm's spank(7) has the order):
 *
 *   srun, sbatch, salloc   options are read and held against the limits: a wrong one ends the
 *                          command, before there is a job
 *   slurmd's prolog        root, before the job's first step on the node: notes the GPUs that
 *                          Slurm gave it, which no user's environment can say
 *   slurmstepd             root, at the beginning of each step: the job's tenant is made, if it
 *                          is not there (the first step on this node, or weir serve was restarted)
 *   a task                 the user: learns its tenant by environment, or does not start and says
 *                          why
 *   slurmstepd             root, when a step's last task has ended: what the job has used so far
 *                          is written into its AdminComment, if the administrator wants that
 *   slurmd's epilog        root, after the job's last step, however that ended: the tenant is
 *                          removed
 *
 * A tenant is named slurm-JOBID and its socket belongs to the job's user. The node checks
 * everything again, since a user can forge what srun and sbatch send. No act of a user makes a hook
 * of slurmstepd fail outside a task: for a batch job Slurm would take the node out of service.
 *
 * All symbols but the hooks are static or hidden: Slurm's daemons and commands export many names,
 * and theirs would win over a plugin's.
 */
#include "host_backend/config/control.h"
#include "slurm/gpus.h"
#include "slurm/share.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
SPANK_PLUGIN(weir, 1);
#pragma GCC visibility pop

static struct weir_share_rules rules;
static struct weir_share_wish wish;
static bool has_wish;

/* Set in slurmstepd and read by its tasks, which are forked from it. */
static bool is_ours;               /* the step's tasks get the job's tenant */
static char problem[400];          /* why the tasks must not start; "": they may */
static char gpus[WEIR_GPUS_BYTES]; /* the tenant's devices; "": all devices of the host */

#define PROBLEM(...) (void)snprintf(problem, sizeof(problem), __VA_ARGS__)

static void name_of(uint32_t job, char name[WEIR_TENANT_NAME_BYTES])
{
    snprintf(name, WEIR_TENANT_NAME_BYTES, "slurm-%u", job);
}

/* The first complaint in an answer, or NULL. */
static const char *error_in(const struct weir_status_report *report)
{
    size_t at = WEIR_FIRST(i, report->n_notes, strcmp(report->notes[i].kind, "error") == 0);
    return at < report->n_notes ? report->notes[at].text : NULL;
}

/* ---------------------------------------------------------------- the tenant */

/* Was the existing tenant made with this setting? */
static bool has(const struct weir_status_report *report, const char *key, const char *value)
{
    for (size_t i = 0; i < report->n_settings; i++) {
        const struct weir_status_setting *s = &report->settings[i];
        if (strcmp(s->key, key) == 0) {
            return strcmp(s->base, value) == 0;
        }
    }
    return false;
}

/* Compare sizes as numbers, since one size has several spellings. The report writes bytes without a
 * unit. */
static bool has_memory(const struct weir_status_report *report, uint64_t bytes)
{
    for (size_t i = 0; i < report->n_settings; i++) {
        const struct weir_status_setting *s = &report->settings[i];
        uint64_t there;
        if (strcmp(s->key, "memory") == 0) {
            return weir_share_size(s->base, &there) == WEIR_OK && there == bytes;
        }
    }
    return false;
}

/* Remember the devices that the tenant was made with. */
static void note_gpus(const struct weir_status_report *report)
{
    for (size_t i = 0; i < report->n_settings; i++) {
        const struct weir_status_setting *s = &report->settings[i];
        if (strcmp(s->key, "devices") == 0 && weir_gpus_ok(s->base)) {
            strcpy(gpus, s->base);
        }
    }
}

/* The tenant exists already: check that an earlier step made it for this user and with the same
 * wishes. */
static void compare(const struct weir_status_report *report, const char *name, const char *user)
{
    char weight[16];
    snprintf(weight, sizeof(weight), "%u", wish.weight);
    if (!has(report, "user", user)) {
        PROBLEM("there is a tenant %s that is not this job's", name);
    } else if ((wish.given[WEIR_SHARE_WEIGHT] && !has(report, "weight", weight)) ||
               (wish.given[WEIR_SHARE_MEM] && !has_memory(report, wish.mem_bytes)) ||
               (wish.given[WEIR_SHARE_PRIORITY] &&
                !has(report, "priority", weir_priority_names[wish.priority]))) {
        PROBLEM("a step cannot change what the job has: give --weir-weight, --weir-mem and "
                "--weir-priority to sbatch or salloc");
    }
}

/* Ask the host. NULL: it does not answer, and `problem` says so. */
static struct weir_status_report *ask(const char *const *words, size_t n_words)
{
    struct weir_status_report *report;
    enum weir_status status = weir_control_ask(rules.run_dir, words, n_words, -1, &report);
    if (status != WEIR_OK) {
        PROBLEM("the host of this node's GPU does not answer: %s/admin.sock: %s", rules.run_dir,
                weir_status_text(status));
        return NULL;
    }
    return report;
}

/* Does the tenant exist, or is there a problem already? */
static bool is_there(const char *name, const char *user)
{
    const char *const words[] = {"tenant", "show", name};
    struct weir_status_report *report = ask(words, 3);
    bool there = report && !error_in(report);
    if (there) {
        compare(report, name, user);
        note_gpus(report);
    }
    weir_status_report_destroy(report);
    return there || !report;
}

/* ---------------------------------------------------------------- the job's GPUs */

/* Path of the file in which the prolog notes the job's GPUs. false: the path is too long. */
static bool note_path(uint32_t job, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/slurm/%u", rules.run_dir, job) < PATH_MAX;
}

/* Read what the prolog has noted; "": nothing, or no valid list. */
static void read_note(uint32_t job, char list[WEIR_GPUS_BYTES])
{
    char path[PATH_MAX];
    FILE *file = note_path(job, path) ? fopen(path, "re") : NULL;
    list[0] = '\0';
    if (!file) {
        return;
    }
    if (!fgets(list, WEIR_GPUS_BYTES, file) || !weir_gpus_ok(list)) {
        list[0] = '\0';
    }
    fclose(file);
}

/* Does the job have all of the host's GPUs? Then its programs share workers with all tenants. */
static bool are_all(const char *list)
{
    static const char *const words[] = {"status"};
    struct weir_status_report *report = ask(words, 1);
    bool all = false;
    for (size_t i = 0; report && i < report->n_workers; i++) {
        const struct weir_status_worker *w = &report->workers[i];
        all |= w->all_devices && weir_gpus_same(w->devices, list);
    }
    weir_status_report_destroy(report);
    return all;
}

static void choose_gpus(uint32_t job)
{
    if (rules.gpus == WEIR_SHARE_GPUS_ALL) {
        return;
    }
    read_note(job, gpus);
    if (gpus[0] && are_all(gpus)) {
        gpus[0] = '\0';
    }
}

/* ---------------------------------------------------------------- making it */

static void make_tenant(const char *name, const char *user, const struct weir_share *share)
{
    char of_user[32];
    char weight[32];
    char priority[32];
    char memory[40];
    char devices[WEIR_GPUS_BYTES + 16];
    const char *words[8] = {"tenant", "add", name, of_user, weight, priority};
    size_t n = 6;
    snprintf(of_user, sizeof(of_user), "user=%s", user);
    snprintf(weight, sizeof(weight), "weight=%u", share->weight);
    snprintf(priority, sizeof(priority), "priority=%s", weir_priority_names[share->priority]);
    if (share->mem_bytes) {
        snprintf(memory, sizeof(memory), "memory=%llu", (unsigned long long)share->mem_bytes);
        words[n++] = memory;
    }
    if (gpus[0]) {
        snprintf(devices, sizeof(devices), "devices=%s", gpus);
        words[n++] = devices;
    }
    struct weir_status_report *report = ask(words, n);
    const char *why = report ? error_in(report) : NULL;
    if (why && !is_there(name, user)) { /* otherwise another step was faster */
        PROBLEM("the host of this node's GPU refuses the job: %s", why);
    }
    weir_status_report_destroy(report);
}

/* ---------------------------------------------------------------- options */

static int on_option(int option, const char *text, int remote)
{
    struct weir_diag diag = {0};
    has_wish = true;
    if (weir_share_wish_take(&wish, (enum weir_share_option)option, text ? text : "", &diag) ==
        WEIR_OK) {
        return 0;
    }
    if (remote) {
        PROBLEM("%s", diag.message);
        return 0;
    }
    slurm_error("weir: %s", diag.message);
    return -1;
}

static struct spank_option options[] = {
    {(char *)(uintptr_t) "weir-weight", (char *)(uintptr_t) "N",
     (char *)(uintptr_t) "share of the GPU against others' jobs, 1 to 10000", 1, WEIR_SHARE_WEIGHT,
     on_option},
    {(char *)(uintptr_t) "weir-mem", (char *)(uintptr_t) "SIZE",
     (char *)(uintptr_t) "GPU memory of the job on each node, [K|M|G|T]", 1, WEIR_SHARE_MEM,
     on_option},
    {(char *)(uintptr_t) "weir-priority", (char *)(uintptr_t) "low|normal|high",
     (char *)(uintptr_t) "class in which the job's share counts", 1, WEIR_SHARE_PRIORITY,
     on_option},
};

/* Read the plugin's arguments. On the node, and for a job with wishes, they must be valid. */
static void read_rules(int argc, char **argv)
{
    struct weir_diag diag = {0};
    if (weir_share_rules_read(argc, (const char *const *)argv, &rules, &diag) != WEIR_OK) {
        PROBLEM("plugstack.conf: %s", diag.message);
    }
}

#pragma GCC visibility push(default)

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE) {
        return 0;
    }
    read_rules(argc, argv);
    for (size_t i = 0; i < WEIR_COUNT(options); i++) {
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) {
            slurm_error("weir: --%s cannot be an option here", options[i].name);
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- srun, sbatch, salloc */

static int check_here(void)
{
    struct weir_diag diag = {0};
    if (!has_wish) {
        return 0;
    }
    if (!problem[0] && weir_share_wish_check(&wish, &rules, &diag) != WEIR_OK) {
        PROBLEM("%s", diag.message);
    }
    if (problem[0]) {
        slurm_error("weir: %s", problem);
    }
    return problem[0] ? -1 : 0;
}

/* ---------------------------------------------------------------- slurmstepd */

/* The shards that Slurm gave the step on this node: Slurm overrides what the user set. */
static uint32_t shards_of(spank_t spank)
{
    char text[16];
    if (spank_getenv(spank, "SLURM_SHARDS_ON_NODE", text, sizeof(text)) != ESPANK_SUCCESS) {
        return 0;
    }
    return (uint32_t)strtoul(text, NULL, 10);
}

static void begin_step(spank_t spank)
{
    char name[WEIR_TENANT_NAME_BYTES];
    char user[16];
    struct weir_share share = {0};
    struct weir_diag diag = {0};
    uint32_t shards = shards_of(spank);
    uint32_t job;
    uid_t uid;
    is_ours = has_wish || (shards && rules.mem_per_shard_bytes);
    if (!is_ours || problem[0]) {
        return;
    }
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS) {
        PROBLEM("Slurm does not say whose job this is");
        return;
    }
    name_of(job, name);
    snprintf(user, sizeof(user), "%u", (unsigned)uid);
    if (is_there(name, user)) {
        return;
    }
    if (weir_share_of(&wish, &rules, shards, &share, &diag) != WEIR_OK) {
        PROBLEM("%s", diag.message);
        return;
    }
    choose_gpus(job);
    if (!problem[0]) {
        make_tenant(name, user, &share);
    }
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (spank_context() != S_CTX_REMOTE) {
        return check_here();
    }
    begin_step(spank);
    return 0;
}

/* ---------------------------------------------------------------- a task */

#pragma GCC visibility pop

/* Find the guest library: in the administrator's folder, or in "guest" beside this plugin. */
static bool guest_folder(char folder[PATH_MAX])
{
    Dl_info self;
    if (rules.guest_lib[0]) {
        strcpy(folder, rules.guest_lib);
        return true;
    }
    const char *slash = dladdr(&rules, &self) ? strrchr(self.dli_fname, '/') : NULL;
    return slash && snprintf(folder, PATH_MAX, "%.*s/guest", (int)(slash - self.dli_fname),
                             self.dli_fname) < PATH_MAX;
}

/* Put the folder in front of the job's paths, unless a step of the job has done so. Triton's proton
 * looks for libcupti in a way of its own. */
static bool add_library_paths(spank_t spank, const char *folder)
{
    static char old[65536];
    static char joined[sizeof(old) + PATH_MAX + 1];
    size_t n = strlen(folder);
    (void)spank_setenv(spank, "TRITON_CUPTI_LIB_PATH", folder, 0);
    spank_err_t got = spank_getenv(spank, "LD_LIBRARY_PATH", old, sizeof(old));
    if (got != ESPANK_SUCCESS) {
        old[0] = '\0';
    }
    WEIR_FAIL_IF(got == ESPANK_NOSPACE, false);
    if (strncmp(old, folder, n) == 0 && (old[n] == ':' || old[n] == '\0')) {
        return true;
    }
    snprintf(joined, sizeof(joined), "%s%s%s", folder, old[0] ? ":" : "", old);
    return spank_setenv(spank, "LD_LIBRARY_PATH", joined, 1) == ESPANK_SUCCESS;
}

/* Slurm gives a step the node's device numbers; a tenant counts its own devices from 0. */
static bool set_visible(spank_t spank)
{
    char used[WEIR_GPUS_BYTES] = "";
    char visible[WEIR_GPUS_BYTES];
    if (!gpus[0]) {
        return true;
    }
    if (spank_getenv(spank, "SLURM_STEP_GPUS", used, sizeof(used)) != ESPANK_SUCCESS) {
        used[0] = '\0'; /* a batch script may use all devices of the job */
    }
    weir_gpus_visible(gpus, used, visible);
    return spank_setenv(spank, "CUDA_VISIBLE_DEVICES", visible, 1) == ESPANK_SUCCESS;
}

static bool set_environment(spank_t spank)
{
    char folder[PATH_MAX];
    char name[WEIR_TENANT_NAME_BYTES];
    char url[sizeof(rules.run_dir) + sizeof(name) + 16];
    uint32_t job;
    if (!guest_folder(folder) || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) {
        return false;
    }
    name_of(job, name);
    snprintf(url, sizeof(url), "ipc://%s/%s.sock", rules.run_dir, name);
    return add_library_paths(spank, folder) && set_visible(spank) &&
           spank_setenv(spank, "WEIR_HOST", url, 1) == ESPANK_SUCCESS;
}

#pragma GCC visibility push(default)

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (!is_ours) {
        return 0;
    }
    if (!problem[0] && !set_environment(spank)) {
        PROBLEM("the environment cannot be set");
    }
    if (problem[0]) {
        slurm_error("weir: %s", problem);
    }
    return problem[0] ? -1 : 0;
}

/* ---------------------------------------------------------------- what the job has used */

#pragma GCC visibility pop

static void write_use(uint32_t job, const struct weir_status_tenant *t)
{
    job_desc_msg_t change;
    char text[160];
    slurm_init_job_desc_msg(&change);
    snprintf(text, sizeof(text),
             "weir: weight=%u memory=%llu sm_seconds=%.3f wait_seconds=%.3f to_device=%llu "
             "from_device=%llu",
             t->weight, (unsigned long long)t->quota_bytes, (double)t->service_sm_ns / 1e9,
             (double)t->wait_ns / 1e9, (unsigned long long)t->copy_h2d_bytes,
             (unsigned long long)t->copy_d2h_bytes);
    change.job_id = job;
    change.admin_comment = text;
    if (slurm_update_job(&change) != SLURM_SUCCESS) {
        slurm_error("weir: what the job has used is not written into its AdminComment: %s",
                    slurm_strerror(slurm_get_errno()));
    }
}

/* Report what the whole job has used up to now, on this node. */
static void account(uint32_t job)
{
    static const char *const words[] = {"status"};
    char name[WEIR_TENANT_NAME_BYTES];
    struct weir_status_report *report = ask(words, 1);
    name_of(job, name);
    for (size_t i = 0; report && i < report->n_tenants; i++) {
        if (strcmp(report->tenants[i].name, name) == 0) {
            write_use(job, &report->tenants[i]);
        }
    }
    weir_status_report_destroy(report);
}

#pragma GCC visibility push(default)

/* Runs when the last task of a step on the job's first node has ended, but not the job. */
int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    static uint32_t n_exited;
    uint32_t n_tasks, node, job;
    (void)argc;
    (void)argv;
    if (!is_ours || problem[0] || rules.account != WEIR_SHARE_ACCOUNT_COMMENT ||
        spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &n_tasks) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_NODEID, &node) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) {
        return 0;
    }
    if (++n_exited == n_tasks && node == 0) {
        account(job);
    }
    return 0;
}

/* ---------------------------------------------------------------- the job */

/* Runs for every job that has GPUs. A failure here would drain the node, so it never fails. */
int slurm_spank_job_prolog(spank_t spank, int argc, char **argv)
{
    /* slurmd sets this variable for its hooks and scripts. */
    const char *list = getenv("SLURM_JOB_GPUS");
    char path[PATH_MAX];
    uint32_t job;
    read_rules(argc, argv);
    if (!list || !weir_gpus_ok(list) || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        !note_path(job, path)) {
        return 0;
    }
    char *slash = strrchr(path, '/');
    *slash = '\0';
    bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
    *slash = '/';
    FILE *file = made ? fopen(path, "we") : NULL;
    if (!file || fputs(list, file) < 0 || fclose(file) != 0) {
        slurm_error("weir: %s: %s: the job is not kept to its GPUs", path, strerror(errno));
    }
    return 0;
}

static void remove_note(uint32_t job)
{
    char path[PATH_MAX];
    if (note_path(job, path)) {
        (void)unlink(path);
        *strrchr(path, '/') = '\0';
        (void)rmdir(path); /* succeeds if this was the last note */
    }
}

/* Removes the tenant of any job, since the job's steps may have left no note of one. */
int slurm_spank_job_epilog(spank_t spank, int argc, char **argv)
{
    char name[WEIR_TENANT_NAME_BYTES];
    const char *const words[] = {"tenant", "remove", name};
    struct weir_status_report *report;
    uint32_t job;
    read_rules(argc, argv);
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) {
        return 0;
    }
    remove_note(job);
    name_of(job, name);
    enum weir_status status = weir_control_ask(rules.run_dir, words, 3, -1, &report);
    if (status == WEIR_OK) {
        weir_status_report_destroy(
            report); /* an error in the report means that there was no tenant */
    } else if (status != WEIR_ERR_NOT_FOUND) {
        slurm_error("weir: tenant %s is not removed: %s/admin.sock: %s", name, rules.run_dir,
                    weir_status_text(status));
    }
    return 0;
}

#pragma GCC visibility pop
