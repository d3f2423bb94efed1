/* weir.toml: what the host serves, and to whom. A value type: it is copied and compared, and has no
 * pointers. */
#pragma once

#include "base/priority.h"
#include "base/status.h"
#include "host_backend/config/control.h"
#include "host_backend/config/forms.h"
#include "host_backend/config/scheduler.h"

#define WEIR_CONFIG_TENANTS_MAX 256
#define WEIR_WINDOWS_MAX        80 /* tenants with work in one worker; a machine may allow fewer */
#define WEIR_CONFIG_PATH_BYTES  256
#define WEIR_CONFIG_USER_BYTES  40
#define WEIR_SPARE_WORKERS_MAX  32
#define WEIR_KEY_Z85_BYTES      41 /* 40 characters and NUL */
#define WEIR_SETTINGS_MAX       22 /* keys of a [[tenant]]; at least weir_setting_count() */
#define WEIR_SETTING_TEXT_BYTES 192

/* Which programs one worker serves: docs/design/workers.md. */
enum weir_isolation {
    WEIR_ISOLATION_GROUP,   /* one worker serves the tenants with the same group */
    WEIR_ISOLATION_TENANT,  /* one worker serves the tenant's programs */
    WEIR_ISOLATION_PROGRAM, /* a program */
    WEIR_ISOLATION_STRICT,  /* one worker serves one program, and is never an MPS client */
};

/* What the host does with a program for which it cannot start another worker. */
enum weir_shortage { WEIR_SHORTAGE_SHARE, WEIR_SHORTAGE_REFUSE };

/* Are the workers of programs clients of MPS servers that the host runs? */
enum weir_mps { WEIR_MPS_OFF, WEIR_MPS_AUTO, WEIR_MPS_ON };

/* The settings of [host] about workers of programs. */
struct weir_workers_config {
    uint32_t spares; /* idle workers that the host keeps ready for each list of devices */
    uint32_t idle_s; /* seconds that a worker waits for the next program of its tenant */
    enum weir_shortage on_shortage;
    enum weir_mps mps;
    bool mps_alone; /* also a program that is alone on its GPUs is a client */
};

/* May a tenant's kernels run beside others' when a policy wants to co-run them? */
enum weir_sharing { WEIR_SHARE_YES, WEIR_SHARE_NO };

/* Bytes, or a percentage of the device's memory. Both 0: all of it. */
struct weir_amount {
    uint64_t bytes;
    uint32_t pct;
};

/* Bytes for a list of devices: ordinals or UUIDs ("GPU-1234") with commas, no blanks; "": all. */
#define WEIR_DEVICE_LIST_BYTES 704

struct weir_tenant_config {
#define TEXT(bytes)                                                          __typeof__(char[bytes])
#define WEIR_SETTING(key, kind, type, member, low, high, words, live, usual) type member;
#include "host_backend/config/tenant.def"
#undef WEIR_SETTING
#undef TEXT
};

/* Part of WEIR_CONFIG_TENANTS_MAX; the rest is for tenants that administrators add. */
#define WEIR_USER_TENANTS_MAX 192u

/* Shares on demand ([default]): docs/design/demand.md. */
struct weir_demand_config {
    struct weir_tenant_config usual; /* settings of a share whose user asked for nothing */
    struct weir_tenant_config most;  /* the most that a user may ask for */
    uint32_t per_user;               /* shares that a user may have at a time; 0: none are made */
    uint32_t user_tenants;           /* most users who get a tenant of their own; 0: nobody does */
    bool show_others;                /* all tenants may see which tenants their work waits for */
    uint32_t total_weight;           /* the sum of the weights of all shares of all users */
    uint32_t socket_mode;            /* mode of the socket at which users ask */
};

struct weir_host_config {
    char run_dir[WEIR_CONFIG_PATH_BYTES];
    char listen_tcp[WEIR_CONFIG_PATH_BYTES];
    char server_key[WEIR_CONFIG_PATH_BYTES]; /* path of the file with the secret Z85 key */
    char driver[WEIR_CONFIG_PATH_BYTES];
    char softgpu[WEIR_CONFIG_PATH_BYTES];
    char cupti[WEIR_CONFIG_PATH_BYTES]; /* path of NVIDIA's libcupti, "auto" or "off" */
    char log[WEIR_CONFIG_PATH_BYTES];
    char cdi[WEIR_CONFIG_PATH_BYTES];     /* the CDI file; "none"; "": the default */
    uint32_t socket_mode;                 /* mode of the tenants' sockets */
    char vm_user[WEIR_CONFIG_PATH_BYTES]; /* the user that QEMU runs as; "": libvirt's usual one */
    uint32_t vsock_port;                  /* 0: the host does not listen on vsock */
    uint32_t quarantine_s;    /* length of the quarantine after a fault; 0: there is none */
    uint32_t linger_s;        /* how long programs run on without a supervisor; 0: they end */
    uint64_t vm_region_bytes; /* size of each virtual machine's region; 0: none is served */
    char devices[WEIR_DEVICE_LIST_BYTES];
    bool exclusive; /* no other host may serve the same GPU */
    uint64_t window_base;
    uint64_t window_bytes;
    uint64_t vmm_base; /* the addresses that guests of all tenants reserve */
    uint64_t vmm_bytes;
    char worker_user[WEIR_CONFIG_USER_BYTES]; /* name or number; "": weir-worker, if there is one */
    struct weir_workers_config workers;
    struct weir_forms_config forms;
    struct weir_sched_settings scheduler;
    char metrics_listen[WEIR_CONFIG_PATH_BYTES]; /* "ADDRESS:PORT" or a socket's path; "": none */
    char libvirt_uri[WEIR_CONFIG_PATH_BYTES];    /* "": the metadata of domains is not read */
    bool libvirt_create; /* a domain's element creates its tenant, if there is none */
    struct weir_demand_config demand;
    struct weir_tenant_config tenants[WEIR_CONFIG_TENANTS_MAX];
    uint32_t n_tenants;
};

/** The configuration of a host without a file: one tenant "default". */
void weir_config_default(struct weir_host_config *ret_config);

/**
 * Read a configuration text.
 *
 * @param ret_config  written only on success; starts from the defaults.
 * @param ret_diag    filled on WEIR_ERR_SYNTAX.
 * @return WEIR_OK, WEIR_ERR_SYNTAX
 * @thread any
 */
enum weir_status weir_config_parse(const char *text, size_t bytes,
                                   struct weir_host_config *ret_config,
                                   struct weir_diag *ret_diag) WEIR_MUST_CHECK;

/** Are the addresses for reservations outside the windows? Fills ret_diag if not. */
bool weir_config_areas_ok(const struct weir_host_config *config, struct weir_diag *ret_diag);

/** Is this "off" or a list of policies? Fills ret_diag if not. */
bool weir_config_policy_ok(const char *policy, struct weir_diag *ret_diag);

/** Is this an absolute path that ends in .json, "none", or ""? */
bool weir_config_cdi_ok(const char *cdi);

/**
 * How much of the memory of the devices in a list the quotas promise to the tenants with that list.
 * Tenants without a quota are promised nothing.
 *
 * @param tenants      n of them.
 * @param devices      as the tenants have it; "": the host's own list.
 * @param total_bytes  of these devices; 0: not known, so that only percentages count.
 * @return percent; 100 and less is not too much
 * @thread any
 */
uint32_t weir_config_promised_pct(const struct weir_tenant_config *const *tenants, size_t n,
                                  const char *devices, uint64_t total_bytes);

/**
 * List the keys outside [[tenant]] that differ and that a reload does not change: "[host] log, ..".
 */
void weir_config_restart_keys(const struct weir_host_config *before,
                              const struct weir_host_config *now, char *text, size_t bytes);

/** Read a configuration file. WEIR_ERR_IO, WEIR_ERR_NOT_FOUND, WEIR_ERR_TOO_BIG (1 MiB). */
enum weir_status weir_config_load(const char *path, struct weir_host_config *ret_config,
                                  struct weir_diag *ret_diag) WEIR_MUST_CHECK;

/**
 * Read "8GiB", "512 MiB", "1.5GB", "25%", "1048576".
 * @return WEIR_OK, WEIR_ERR_INVALID
 */
enum weir_status weir_amount_parse(const char *text,
                                   struct weir_amount *ret_amount) WEIR_MUST_CHECK;

/**
 * The amount for one device of a list such as "8GiB,25%": the last is also for all that follow.
 * @param device  from 0.
 * @return WEIR_OK, WEIR_ERR_INVALID (no amount), WEIR_ERR_NOT_FOUND (the list is "")
 */
enum weir_status weir_amounts_get(const char *list, uint32_t device,
                                  struct weir_amount *ret_amount) WEIR_MUST_CHECK;

/**
 * Is this a list of labels, "namespace=ml,pod=train-0"? Names are a letter and letters, digits and
 * _; values have no control characters, quotes, backslashes, blanks or commas.
 */
bool weir_labels_ok(const char *labels);

/**
 * A list of devices as the configuration or the command line has it, without its blanks.
 * @param ret_list  WEIR_DEVICE_LIST_BYTES.
 * @return WEIR_OK, WEIR_ERR_INVALID (empty, something else than a number or "GPU-...", or twice)
 */
enum weir_status weir_devices_parse(const char *text, char *ret_list) WEIR_MUST_CHECK;

/** Are all devices of a list also in another, "" being all? Compares as they are written. */
bool weir_devices_among(const char *list, const char *all);
/** May two lists have a device in common, "" being all? A number and a UUID may name the same. */
bool weir_devices_meet(const char *list, const char *other);

/**
 * The number of a user who is given by name or number.
 * @return WEIR_OK, WEIR_ERR_INVALID (no number of a user), WEIR_ERR_NOT_FOUND (no such name)
 * @thread main: asks for names with getpwnam()
 */
enum weir_status weir_user_id(const char *text, uint32_t *ret_uid) WEIR_MUST_CHECK;

/** The part of a whole that an amount stands for; never more than the whole. */
uint64_t weir_amount_of(struct weir_amount amount, uint64_t whole_bytes);

/*
 * A tenant's settings one by one: the keys of [[tenant]] without "name", as `weir tenant set` and
 * libvirt's metadata give them. Numbers run from 0 to weir_setting_count() - 1.
 */

/** A tenant with the default settings. */
void weir_tenant_config_default(struct weir_tenant_config *ret_tenant, const char *name);
/**
 * The percentage of the SMs that a program may use: its tenant's limit, or what it asks for if that
 * is less.
 * @param asked_pct  0: it asks for nothing
 * @thread any, also while the setting changes
 */
uint32_t weir_tenant_sm_limit(const struct weir_tenant_config *tenant, uint32_t asked_pct);
/** Do isolation and group fit together? @thread any */
bool weir_tenant_group_ok(const struct weir_tenant_config *tenant);
/** The rule of weir_tenant_name_ok(), as a text for people. */
extern const char weir_tenant_name_rule[];
/** The rule of weir_tenant_group_ok(), as a text for people. */
extern const char weir_group_rule[];
/** The text for a program that was refused because its tenant has too many sessions. */
void weir_sessions_refusal(const char *tenant, uint64_t sessions_max, char *text, size_t bytes);
/** The text for a program that was refused because its tenant is drained. */
void weir_drain_refusal(const char *tenant, char *text, size_t bytes);
/** Which key do two tenants have in common although it must differ: "key", "vsock_cid"? NULL:
 * none. */
const char *weir_tenants_clash(const struct weir_tenant_config *a,
                               const struct weir_tenant_config *b);
/** Does the host serve all of the tenant's devices? */
bool weir_tenant_devices_ok(const struct weir_tenant_config *tenant,
                            const struct weir_host_config *host);
/** A tenant's list of devices; NULL: it has none, or an earlier tenant has the same. Borrowed. */
const char *weir_config_new_devices(const struct weir_host_config *config, uint32_t tenant);
/** The user of a tenant in weir.toml; "": there is no such tenant, or it has no user. Borrowed. */
const char *weir_config_user_of(const struct weir_host_config *config, const char *tenant);
/** Is this a valid name of a tenant? */
bool weir_tenant_name_ok(const char *name);
size_t weir_setting_count(void);
const char *weir_setting_key(size_t setting);
/** The words that the setting may have, ended by NULL; NULL: it is no choice of words. */
const char *const *weir_setting_choices(size_t setting);
/** May the setting change while the host runs? */
bool weir_setting_is_live(size_t setting);
/** Find the number of a key ("sm-limit" means "sm_limit"); -1: there is none. */
int weir_setting_find(const char *key);

/**
 * Store a value as it would stand in weir.toml, without its quotes.
 *
 * @param ret_diag  filled on WEIR_ERR_INVALID: names the key and says what it must be.
 * @return WEIR_OK, WEIR_ERR_INVALID
 * @thread any
 */
enum weir_status weir_setting_store(size_t setting, const char *text,
                                    struct weir_tenant_config *config,
                                    struct weir_diag *ret_diag) WEIR_MUST_CHECK;
/**
 * Does the machine or the device have as much memory as the setting gives? Percentages always fit.
 *
 * @param device_bytes  0: not known, so that any amount fits.
 * @param ret_diag      filled if not: says how much there is.
 * @thread any
 */
bool weir_setting_fits(size_t setting, const struct weir_tenant_config *config,
                       uint64_t device_bytes, struct weir_diag *ret_diag);
void weir_setting_copy(size_t setting, const struct weir_tenant_config *from,
                       struct weir_tenant_config *to);
bool weir_setting_equal(size_t setting, const struct weir_tenant_config *a,
                        const struct weir_tenant_config *b);
/** Compare all settings but the name; bytes behind a text's end and padding do not count. */
bool weir_settings_equal(const struct weir_tenant_config *a, const struct weir_tenant_config *b);
/** The setting's value as weir_setting_store() reads it; cut at WEIR_SETTING_TEXT_BYTES. */
void weir_setting_text(size_t setting, const struct weir_tenant_config *config,
                       char text[WEIR_SETTING_TEXT_BYTES]);

/*
 * Shares on demand (demand.c).
 */

/** The defaults of [default]. */
void weir_demand_default(struct weir_demand_config *ret_demand);
/** Derive missing keys of [default] from those that are set. Fills ret_diag on a contradiction. */
bool weir_demand_complete(struct weir_demand_config *demand, uint32_t socket_mode,
                          struct weir_diag *ret_diag);
/**
 * Make the settings of a share on demand. Where [default] has more memory than there is, a share
 * that asks for none has all that there is.
 *
 * @param words       n_words of "KEY=VALUE", as weir_setting_store() takes them; changed.
 * @param device_bytes  memory of its devices; 0: not known.
 * @param ret_tenant  without a name and a user; written only on success.
 * @param ret_diag    filled on WEIR_ERR_INVALID: the first word that is wrong, or asks for too
 *                    much.
 * @return WEIR_OK, WEIR_ERR_INVALID
 * @thread any
 */
enum weir_status weir_demand_take(const struct weir_demand_config *demand, char *const *words,
                                  size_t n_words, uint64_t device_bytes,
                                  struct weir_tenant_config *ret_tenant,
                                  struct weir_diag *ret_diag) WEIR_MUST_CHECK;
/** Divide a total weight among shares in the ratio of the weights that they asked for. */
void weir_demand_divide(uint32_t together, const uint32_t *asked, uint32_t n,
                        uint32_t *ret_weights);

/** Fill a row of `weir status` with a tenant's settings. */
void weir_tenant_config_show(const struct weir_tenant_config *tenant,
                             struct weir_status_tenant *row);
