/* What the files of this folder share about modules and devices. */
#ifndef WEIR_HOST_BACKEND_WORKER_TWINS_PRIVATE_H
#define WEIR_HOST_BACKEND_WORKER_TWINS_PRIVATE_H

#include "host_backend/worker/runs/run.h"
#include "host_backend/worker/twins/carve_out.h"
#include "host_backend/worker/twins/fit.h"
#include "host_backend/worker/twins/forms.h"
#include "host_backend/worker/twins/twin_set_build.h"

#define WEIR_FORMS_JOBS_MAX 512u /* a program may load that many modules in its first second */

/* The persistent form as it is; with as few registers as its kernel; with some more
 * (choose_variant.c). */
enum weir_forms_variant {
    WEIR_FORMS_PLAIN,
    WEIR_FORMS_CAPPED,
    WEIR_FORMS_ROOMY,
    WEIR_FORMS_VARIANTS,
    WEIR_FORMS_ORIGINAL = WEIR_FORMS_VARIANTS /* of a launch that is timed: none of them */
};

enum weir_forms_other_state {
    WEIR_FORMS_OTHER_UNKNOWN, /* the variant was not asked for */
    WEIR_FORMS_OTHER_PENDING,
    WEIR_FORMS_OTHER_READY,
    WEIR_FORMS_OTHER_NONE,
};

/* A persistent twin in a module of its own. The builder's while it is PENDING. */
struct weir_forms_other {
    atomic_int state; /* enum weir_forms_other_state */
    bool taken;       /* the session has seen the state READY */
    uint32_t max_regs;
    struct weir_host_image *image; /* a reference, until the text was read from the image */
    struct weir_forms_set *set;
    CUmodule module;
    CUfunction twin;
};

/* Blocks on an SM, as found for this launch. */
struct weir_forms_fit {
    uint32_t threads, shared_bytes;
    enum weir_ptx_form form;
    uint32_t native_blocks;
    uint32_t per_sm[WEIR_FORMS_VARIANTS];      /* 0: does not fit, or is not there */
    uint64_t block_bytes[WEIR_FORMS_VARIANTS]; /* shared memory of an SM that a block takes */
    struct weir_forms_carve_out carve_out[WEIR_FORMS_VARIANTS];
};

enum weir_forms_timed {
    WEIR_FORMS_TIMED_NOTHING,
    WEIR_FORMS_TIMED_FLYING,
    WEIR_FORMS_TIMED_WHOLE,  /* the launch has ended, and was not stopped */
    WEIR_FORMS_TIMED_SPOILT, /* the launch was stopped or moved */
};

#define WEIR_FORMS_TIMINGS 4u /* timings of each twin before one is chosen */

/* The launch that is timed, and what came of those before. */
struct weir_forms_timing {
    atomic_int state; /* enum weir_forms_timed */
    enum weir_forms_variant variant;
    uint64_t blocks, workers;
    CUevent begin, end;
    uint32_t since;    /* launches since the last timing */
    uint32_t launches; /* launches while variants are still to be tried */
    uint32_t n[WEIR_FORMS_VARIANTS], tries[WEIR_FORMS_VARIANTS];
    uint64_t grid_ps[WEIR_FORMS_VARIANTS]; /* shortest time of a grid divided by its blocks */
};

/* What a kernel's twins cost: the shortest times of its original [0] and of twins [1]. */
struct weir_forms_cost {
    uint64_t blocks;   /* of the launches that are compared */
    uint64_t until_ns; /* then they are timed again */
    uint32_t launches; /* since then */
    uint32_t n[2], tries[2];
    uint64_t ns[2];
};

enum weir_forms_verdict {
    WEIR_FORMS_TAKES_TWIN, /* or what it costs is not known yet */
    WEIR_FORMS_TAKES_ORIGINAL,
    WEIR_FORMS_TIMES_ORIGINAL,
};

/* A kernel of a module that has a twin. Session thread, but for what is atomic. */
struct weir_forms_kernel {
    struct weir_forms_module *module;
    const struct weir_forms_kernel_info *info;
    CUfunction twins[WEIR_PTX_FORM_COUNT]; /* NULL: not of this form */
    bool useless;                          /* the driver refused the twin */
    bool attributes_mirrored;
    uint32_t attributes_seen; /* module->attributes_set at the last look */
    struct weir_forms_fit fit;
    struct weir_forms_other others[WEIR_FORMS_VARIANTS]; /* the one of PLAIN is unused */
    struct weir_forms_timing timing;
    struct weir_forms_cost cost;
    uint64_t divided_until_ns; /* until then it counts as a kernel of a division by blocks */
    uint64_t launches[WEIR_PTX_FORM_COUNT]; /* ORIGINAL: a twin was there, but not wanted */
    atomic_bool never_stop;
    uint32_t learned;              /* what the cache had of it (learned.c) */
    atomic_uint_fast64_t block_ns; /* time of one block: the shortest seen, slowly forgotten */
};

enum weir_forms_module_state {
    WEIR_FORMS_PENDING,
    WEIR_FORMS_READY,
    WEIR_FORMS_NONE, /* there are no twins */
};

/* A constant of a module, and its copy in the module of twins. */
struct weir_forms_const {
    CUdeviceptr original, twin;
    size_t bytes;
};

/*
 * A guest's module on one device, with its twins. Counted: by the session's module, the builder,
 * and each run. The session's thread alone uses it, but for the builder until it says READY.
 */
struct weir_forms_module {
    struct weir_forms_module *next; /* the module on other devices, or the device's dead */
    struct weir_forms_device *device;
    atomic_uint refs;
    atomic_int state; /* enum weir_forms_module_state */
    enum weir_forms_mode mode;
    char tenant[WEIR_TENANT_NAME_BYTES];
    CUmodule original; /* a CUmodule or a CUlibrary */
    bool library;
    bool bound, refused;
    uint32_t attributes_set; /* how often the guest has set attributes */

    /* The job. */
    bool waits;       /* it is no job until another tenant may want runs: session's thread */
    uint64_t from_ns; /* do not begin the job before */
    struct weir_host_image_store *store;
    struct weir_host_image *image; /* a reference, until the text was read from the image */
    struct weir_hash image_hash;
    uint64_t image_bytes;
    CUjit_option *option_ids;
    void **option_values;
    uint32_t n_options;

    /* Written by the builder before it says READY. */
    struct weir_forms_set *set;
    struct weir_hash learned_key; /* in the cache: what was learned of the set's kernels */
    CUmodule twins;
    CUfunction finish;                 /* NULL: no ticket form */
    struct weir_forms_kernel *kernels; /* in the order of set->kernels */

    struct weir_forms_const *consts; /* set once the module is bound */
    uint32_t n_consts;

    struct weir_host_image *kept; /* an orphan's reference: the driver may read the image */
    bool orphan;                  /* we have to unload the original */
};

/* What a builder does: a module's twins, or (kernel) another variant of one of them. */
struct weir_forms_job {
    struct weir_forms_module *module; /* a reference */
    struct weir_forms_kernel *kernel; /* the kernel whose variant is wanted; or NULL */
    enum weir_forms_variant variant;  /* the wanted variant of kernel */
};

struct weir_forms_device {
    struct weir_forms *forms;
    const struct weir_worker_device *gpu; /* state/platform.h */
    uint32_t index, sm, sms, sm_shared_bytes;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    pthread_t builder, explorer;
    bool building, exploring, quit;
    struct weir_forms_job jobs[WEIR_FORMS_JOBS_MAX]; /* a ring */
    uint32_t n_jobs, first_job;
    struct weir_forms_module *dead; /* modules that the builder is to unload */
    struct weir_run_streams *streams;
    struct weir_runs *_Atomic runs; /* made before the first twin is READY */
};

struct weir_forms {
    struct weir_worker *worker;
    const struct weir_driver *driver;
    bool real; /* NVIDIA's driver, not softgpu */
    struct weir_forms_config config;
    struct weir_file_cache cache;
    const struct weir_compiler *compiler;
    struct weir_forms_device devices[WEIR_DEVICES_MAX];
    uint32_t n_devices;
    atomic_uint_fast64_t draws; /* random numbers drawn in explore mode */
};

/** Drop a reference; the last unloads the twins, with the device idle. @thread any, but a run's
 * watcher */
void weir_forms_module_put(struct weir_forms_module *module);
/** Like weir_forms_module_put(), without a wait for the device: the builder unloads. @thread any */
void weir_forms_module_put_later(struct weir_forms_module *module);

/** Enter a job; takes a reference. false: too many. @param kernel  only its variant; or NULL */
bool weir_forms_enqueue(struct weir_forms_module *module, struct weir_forms_kernel *kernel,
                        enum weir_forms_variant variant);

/** Forget a session's exposures of a module, or (NULL) all. */
void weir_forms_exposures_drop(struct weir_session *session, const struct weir_host_module *module);

/** Find the original's variables and give them to the twins. false: not now, or never (refused). */
bool weir_forms_bind(struct weir_session *session, struct weir_forms_module *module);

/** Tell a module of twins where the original's variables are. false: that failed. */
bool weir_forms_bind_globals(struct weir_session *session, struct weir_forms_module *module,
                             CUmodule twins, const struct weir_forms_set *set);

/** No twin of it is launched from now on. */
void weir_forms_refuse(struct weir_forms_module *module, const char *why);

/** The module's twins on the session's device, or NULL. */
struct weir_forms_module *weir_forms_here(struct weir_session *session,
                                          struct weir_forms_module *first);

/* ---- choose_variant.c; session thread */

CUfunction weir_forms_twin_function(const struct weir_forms_kernel *k, enum weir_ptx_form form,
                                    enum weir_forms_variant variant);
const struct weir_forms_twin *weir_forms_twin_info(const struct weir_forms_kernel *k,
                                                   enum weir_ptx_form form,
                                                   enum weir_forms_variant variant);
/** Dynamic shared memory of a twin whose kernel has that many bytes. */
uint32_t weir_forms_twin_shared(const struct weir_forms_twin *twin, uint32_t bytes);

/** Fill k->fit for a launch, unless it is the same as the last one's. */
void weir_forms_fit(struct weir_session *session, struct weir_forms_kernel *k, CUfunction native,
                    enum weir_ptx_form form, uint32_t threads, uint32_t shared_bytes);

/** The variant to launch next, of those that fit. */
enum weir_forms_variant weir_forms_variant_next(const struct weir_driver *driver,
                                                struct weir_forms_kernel *k);
/** A launch shares SMs with another tenant's blocks, each with a number of them. */
void weir_forms_divided(struct weir_forms_kernel *k);
/**
 * Is a launch to be a twin, if that may take cost_pct percent longer than the original?
 * @param blocks  of the launch.
 */
enum weir_forms_verdict weir_forms_judge(struct weir_forms_kernel *k, uint64_t blocks,
                                         uint32_t cost_pct);
/** Blocks of a task for a launch of it. @param workers  1 or more */
uint32_t weir_forms_task_next(const struct weir_forms_kernel *k, enum weir_forms_variant variant,
                              uint64_t blocks, uint64_t workers);

/** Do so large tasks take so long that workers look before each? false: or not known. */
bool weir_forms_tasks_are_long(const struct weir_forms_kernel *k, enum weir_forms_variant variant,
                               uint32_t task_blocks);

/** Before a launch that may be timed. @param variant  or WEIR_FORMS_ORIGINAL
 * @return whether it is: then timing_end() behind it. */
bool weir_forms_timing_begin(const struct weir_driver *driver, struct weir_forms_kernel *k,
                             enum weir_forms_variant variant, uint64_t blocks, uint64_t workers,
                             CUstream stream);
void weir_forms_timing_end(const struct weir_driver *driver, struct weir_forms_kernel *k,
                           bool started, CUstream stream);
/**
 * Say that the launch which weir_forms_timing_begin() began to time has ended.
 * @param whole  it ran to its end without a stop or a move, so its time counts.
 * @thread the watcher, for a run; the session, for a kernel that was launched as it is
 */
void weir_forms_timing_over(struct weir_forms_kernel *k, bool whole);

/** Have the builder make another variant with at most max_regs registers.
 * @thread session, or the builder before the module is READY */
void weir_forms_variant_ask(struct weir_forms_kernel *k, enum weir_forms_variant variant,
                            uint32_t max_regs);

/* ---- learned.c */

/** Take what was learned of the module's kernels in an earlier program. @return was there anything?
 * @thread builder, before the module is READY */
bool weir_forms_learned_take(struct weir_forms_module *module);
/** Keep what was learned. @thread any; the last that has the module */
void weir_forms_learned_keep(const struct weir_forms_module *module);

/* ---- choose_variant.c, explore.c */

/** Free what these have made. The context is current. @thread any; the last */
void weir_forms_variant_finish(struct weir_forms_kernel *k);

/** A random number, the same sequence for the same seed. */
uint64_t weir_forms_draw(struct weir_forms *forms);
/** A random place on a device. */
struct weir_run_place weir_forms_draw_place(struct weir_forms_device *device,
                                            uint32_t most_block_limit);
/** A run has just been put into its stream. */
void weir_forms_explore_begun(struct weir_forms_device *device, struct weir_run *run);
/** The thread that stops, resumes and resizes. */
void *weir_forms_explore(void *device);
#endif
