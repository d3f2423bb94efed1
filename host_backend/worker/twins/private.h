/* Types and functions about modules and devices that the files of this folder share. */
#pragma once

#include "host_backend/worker/runs/run.h"
#include "host_backend/worker/twins/carve_out.h"
#include "host_backend/worker/twins/fit.h"
#include "host_backend/worker/twins/forms.h"
#include "host_backend/worker/twins/twin_set_build.h"

#define WEIR_FORMS_JOBS_MAX 512u /* a program may load that many modules in its first second */

/* Variants of the persistent form: plain; with as few registers as its kernel; with some more
 * (choose_variant.c). */
enum weir_forms_variant {
    WEIR_FORMS_PLAIN,
    WEIR_FORMS_CAPPED,
    WEIR_FORMS_ROOMY,
    WEIR_FORMS_VARIANTS,
    WEIR_FORMS_ORIGINAL = WEIR_FORMS_VARIANTS /* the original, in a timed launch */
};

enum weir_forms_other_state {
    WEIR_FORMS_OTHER_UNKNOWN, /* the variant was not asked for */
    WEIR_FORMS_OTHER_PENDING,
    WEIR_FORMS_OTHER_READY,
    WEIR_FORMS_OTHER_NONE,
};

/* A persistent twin in a module of its own. While it is PENDING, only the builder uses it. */
struct weir_forms_other {
    atomic_int state; /* enum weir_forms_other_state */
    bool taken;       /* the session has seen READY */
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
    uint32_t per_sm[WEIR_FORMS_VARIANTS];      /* 0: it does not fit, or does not exist */
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

/* The launch that is being timed, and the results of earlier ones. */
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

/* Costs of a kernel's twins: the shortest times of its original [0] and of twins [1]. */
struct weir_forms_cost {
    uint64_t blocks;   /* number of blocks of the compared launches */
    uint64_t until_ns; /* when they are timed again */
    uint32_t launches; /* since then */
    uint32_t n[2], tries[2];
    uint64_t ns[2];
};

enum weir_forms_verdict {
    WEIR_FORMS_TAKES_TWIN, /* also while its cost is not known */
    WEIR_FORMS_TAKES_ORIGINAL,
    WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED, /* a division by blocks is worth the twin's cost */
    WEIR_FORMS_TIMES_ORIGINAL,
};

/* A kernel of a module that has a twin. Only the session's thread uses it, except atomic
 * members. */
struct weir_forms_kernel {
    struct weir_forms_module *module;
    const struct weir_forms_kernel_info *info;
    CUfunction twins[WEIR_PTX_FORM_COUNT]; /* NULL: there is no twin of this form */
    bool useless;                          /* the driver refused the twin */
    bool attributes_mirrored;
    uint32_t attributes_seen; /* module->attributes_set at the last look */
    struct weir_forms_fit fit;
    struct weir_forms_other others[WEIR_FORMS_VARIANTS]; /* the entry of PLAIN is unused */
    struct weir_forms_timing timing;
    struct weir_forms_cost cost;
    uint64_t divided_until_ns; /* until then its launches count as sharing SMs by block limits */
    uint64_t placed_until_ns;  /* and as kept to a place, where forms are not timed */
    uint64_t launches[WEIR_PTX_FORM_COUNT]; /* ORIGINAL: number of launches without their twin */
    atomic_bool never_stop;
    uint32_t learned;              /* summary of the cache's row (learned.c) */
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
 * A guest's module on one device, with its twins. References are held by the session's module, the
 * builder, and each run. Only the session's thread uses it; before READY only the builder.
 */
struct weir_forms_module {
    struct weir_forms_module *next; /* the same module on other devices; or the list of dead ones */
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
    bool waits;       /* its job waits until another tenant may want runs; session's thread */
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
    struct weir_hash learned_key; /* key in the cache of the measurements of the set's kernels */
    CUmodule twins;
    CUfunction finish;                 /* NULL: no ticket form */
    struct weir_forms_kernel *kernels; /* in the order of set->kernels */

    struct weir_forms_const *consts; /* set once the module is bound */
    uint32_t n_consts;

    struct weir_host_image *kept; /* reference of an orphan, since the driver may read the image */
    bool orphan;                  /* this folder must unload the original */
};

/* A job of a builder: a module's twins, or (kernel) another variant of one twin. */
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
    bool real; /* the device is a GPU, not softgpu */
    struct weir_forms_config config;
    struct weir_file_cache cache;
    const struct weir_compiler *compiler;
    struct weir_forms_device devices[WEIR_DEVICES_MAX];
    uint32_t n_devices;
    atomic_uint_fast64_t draws; /* random numbers drawn in explore mode */
};

/** Drop a reference; the last one unloads the twins while the device is idle. @thread any, but a
 * run's watcher */
void weir_forms_module_put(struct weir_forms_module *module);
/** Like weir_forms_module_put(), without a wait for the device: the builder unloads. @thread any */
void weir_forms_module_put_later(struct weir_forms_module *module);

/** Queue a job with a reference. false: too many. @param kernel build only its variant; or NULL */
bool weir_forms_enqueue(struct weir_forms_module *module, struct weir_forms_kernel *kernel,
                        enum weir_forms_variant variant);

/** Forget a session's exposures of a module, or (NULL) all. */
void weir_forms_exposures_drop(struct weir_session *session, const struct weir_host_module *module);

/** Find the original's variables and give their addresses to the twins. false: not now, or never
 * (refused). */
bool weir_forms_bind(struct weir_session *session, struct weir_forms_module *module);

/** Write the addresses of the original's variables to a module of twins. false: that failed. */
bool weir_forms_bind_globals(struct weir_session *session, struct weir_forms_module *module,
                             CUmodule twins, const struct weir_forms_set *set);

/** From now on no twin of the module is launched. */
void weir_forms_refuse(struct weir_forms_module *module, const char *why);

/** Find the module's twins on the session's device; NULL: none. */
struct weir_forms_module *weir_forms_here(struct weir_session *session,
                                          struct weir_forms_module *first);

/* ---- choose_variant.c; session thread */

CUfunction weir_forms_twin_function(const struct weir_forms_kernel *k, enum weir_ptx_form form,
                                    enum weir_forms_variant variant);
const struct weir_forms_twin *weir_forms_twin_info(const struct weir_forms_kernel *k,
                                                   enum weir_ptx_form form,
                                                   enum weir_forms_variant variant);
/** Dynamic shared memory of a twin whose kernel has this many bytes. */
uint32_t weir_forms_twin_shared(const struct weir_forms_twin *twin, uint32_t bytes);

/** Fill k->fit for a launch, unless it is the same as the last one's. */
void weir_forms_fit(struct weir_session *session, struct weir_forms_kernel *k, CUfunction native,
                    enum weir_ptx_form form, uint32_t threads, uint32_t shared_bytes);

/** The variant to launch next, of those that fit. */
enum weir_forms_variant weir_forms_variant_next(const struct weir_driver *driver,
                                                struct weir_forms_kernel *k);
/** Note that the scheduler has granted a launch of the kernel only some of the SMs, or only some of
 * the blocks on each. @param divided  fewer blocks on an SM than fit */
void weir_forms_placed(struct weir_forms_kernel *k, bool divided);
/**
 * Should a launch use a twin, which may be cost_pct percent slower than the original?
 * @param blocks  blocks of the launch.
 */
enum weir_forms_verdict weir_forms_judge(struct weir_forms_kernel *k, uint64_t blocks,
                                         uint32_t cost_pct);
/** The number of blocks of a task for a launch of the kernel. @param workers 1 or more */
uint32_t weir_forms_task_next(const struct weir_forms_kernel *k, enum weir_forms_variant variant,
                              uint64_t blocks, uint64_t workers);

/** Do tasks of this size take so long that worker blocks read orders before each one? false also if
 * unknown. */
bool weir_forms_tasks_are_long(const struct weir_forms_kernel *k, enum weir_forms_variant variant,
                               uint32_t task_blocks);

/** Call this before a launch that may be timed. @param variant or WEIR_FORMS_ORIGINAL
 * @return whether it is timed; weir_forms_timing_end() must follow the launch. */
bool weir_forms_timing_begin(const struct weir_driver *driver, struct weir_forms_kernel *k,
                             enum weir_forms_variant variant, uint64_t blocks, uint64_t workers,
                             CUstream stream);
void weir_forms_timing_end(const struct weir_driver *driver, struct weir_forms_kernel *k,
                           bool started, CUstream stream);
/**
 * Note that the timed launch has ended.
 * @param whole  it was not stopped or moved, so its time counts.
 * @thread the watcher, for a run; the session, for an original
 */
void weir_forms_timing_over(struct weir_forms_kernel *k, bool whole);

/** Have the builder make another variant with at most max_regs registers.
 * @thread session, or the builder before the module is READY */
void weir_forms_variant_ask(struct weir_forms_kernel *k, enum weir_forms_variant variant,
                            uint32_t max_regs);

/* ---- learned.c */

/** Read the measurements of the module's kernels from an earlier program. @return whether there
 * were any
 * @thread builder, before the module is READY */
bool weir_forms_learned_take(struct weir_forms_module *module);
/** Save the measurements. @thread any; the last that has the module */
void weir_forms_learned_keep(const struct weir_forms_module *module);

/* ---- choose_variant.c, explore.c */

/** Free the state of these files. The context is current. @thread any; the last */
void weir_forms_variant_finish(struct weir_forms_kernel *k);

/** Draw a random number; the same seed gives the same sequence. */
uint64_t weir_forms_draw(struct weir_forms *forms);
/** Draw a random place on a device. */
struct weir_run_place weir_forms_draw_place(struct weir_forms_device *device,
                                            uint32_t most_block_limit);
/** A run was just put into its stream. */
void weir_forms_explore_begun(struct weir_forms_device *device, struct weir_run *run);
/** Body of the thread that stops, resumes and resizes runs at random. */
void *weir_forms_explore(void *device);
