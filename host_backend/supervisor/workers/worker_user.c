/*
 * Finds the user that workers run as, and gives that user the folder of caches. Workers get
 * everything else as descriptors or over the link.
 */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include "host_backend/config/file_cache.h"
#include "host_backend/config/program_path.h"
#include "host_backend/supervisor/state/extras.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "/dev/nvidiactl"
#define UVM    "/dev/nvidia-uvm" /* the driver creates it when root first uses it */

static const char *why_not(enum weir_status status)
{
    switch ((int)status) {
    case WEIR_ERR_NOT_FOUND:
        return "there is no such user";
    case WEIR_ERR_DENIED:
        return "only a host that root runs can have workers of another user";
    default:
        return weir_status_text(status);
    }
}

void weir_sup_cache_follow(struct weir_supervisor *sup)
{
    const struct weir_confine_user *user = &sup->running.user;
    char dir[sizeof sup->running.cache_dir];

    weir_file_cache_find(sup->config.forms.cache_dir, dir, sizeof dir);
    if (dir[0] == 0) {
        weir_sup_extra_unwanted(sup, WEIR_EXTRA_CACHE);
        return;
    }
    const char *fault = weir_file_cache_fault(dir, user->is_other ? user->uid : geteuid());
    if (!fault && user->is_other && !weir_file_cache_give(dir, user->uid, user->gid)) {
        fault = "it cannot be made and given to the workers' user";
    }
    if (fault) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_CACHE, "'%.80s': %s", dir, fault);
        dir[0] = 0;
    } else {
        weir_sup_extra_works(sup, WEIR_EXTRA_CACHE);
    }
    memcpy(sup->running.cache_dir, dir, sizeof dir);
}

void weir_sup_compiler_follow(struct weir_supervisor *sup)
{
    const char *path = sup->config.forms.compiler;

    if (strcmp(path, "auto") == 0 || strcmp(path, "driver") == 0) {
        weir_sup_extra_unwanted(sup, WEIR_EXTRA_COMPILER);
    } else if (weir_is_program(path)) {
        weir_sup_extra_works(sup, WEIR_EXTRA_COMPILER);
    } else {
        weir_sup_extra_fails(sup, WEIR_EXTRA_COMPILER, "'%.80s': no such program", path);
    }
}

static void report(const struct weir_supervisor *sup)
{
    const struct weir_confine_user *user = &sup->running.user;

    if (user->is_other) {
        weir_log_info("supervisor: workers run as user=%s", user->name);
    } else if (geteuid() != 0 || sup->config.worker_user[0] != 0) {
        weir_log_info("supervisor: workers run as this host's own user uid=%u", geteuid());
    } else {
        weir_log_warn("supervisor: workers run as root: make the user " WEIR_CONFINE_USER
                      ", or set worker_user");
    }
}

static void report_devices(const struct weir_supervisor *sup)
{
    const struct weir_confine_user *user = &sup->running.user;

    if (strcmp(sup->config.driver, "softgpu") == 0 || access(DEVICE, F_OK) != 0) {
        return;
    }
    if (!weir_confine_user_may_open(user, DEVICE)) {
        weir_log_error("supervisor: workers may not open " DEVICE
                       ": give it to a group of their user's user=%s",
                       user->name);
    }
    if (access(UVM, F_OK) != 0) {
        weir_log_error("supervisor: there is no " UVM
                       ", which workers cannot make: run nvidia-modprobe -u -c 0");
    }
}

bool weir_sup_worker_user_find(struct weir_supervisor *sup)
{
    enum weir_status status = weir_confine_user_find(sup->config.worker_user, &sup->running.user);

    if (status != WEIR_OK) {
        fprintf(stderr, "weir serve: worker_user '%s': %s\n", sup->config.worker_user,
                why_not(status));
    }
    return status == WEIR_OK;
}

void weir_sup_worker_user_open(struct weir_supervisor *sup)
{
    weir_sup_cache_follow(sup);
    weir_sup_compiler_follow(sup);
    report(sup);
    report_devices(sup);
}

void weir_sup_worker_user_cache(const struct weir_supervisor *sup, struct weir_forms_config *forms)
{
    if (sup->running.user.is_other) {
        snprintf(forms->cache_dir, sizeof forms->cache_dir, "%s",
                 sup->running.cache_dir[0] != 0 ? sup->running.cache_dir : "none");
    }
}
