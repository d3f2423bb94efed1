/*
 * The Callback API: one subscriber, whose function is called at the beginning and end of calls of
 * the Driver API and the runtime, after the program has waited, and when a context is made.
 *
 * Calls are watched only if callbacks of calls, or activities, are wanted. The other callbacks come
 * only while calls are watched: profilers subscribe to them for good, which must not slow calls.
 */
#include "base/status.h"
#include "guest_cupti/lib.h"

#include <pthread.h>
#include <string.h>

#define IDS_MAX       1024u
#define PARAMS_BYTES  256u /* structs of arguments are smaller: 16 arguments of 8 bytes at most */
#define N_DRIVER_IDS  WEIR_COUNT(driver_names)
#define NEVER_WATCHED (1u << CUPTI_CB_DOMAIN_NVTX)

/* Indexed by CUPTI's number; [0] is unused. */
static const char *const driver_names[] = {
    NULL,
#define D(name) #name,
#include "guest_cupti/driver_ids.def"
#undef D
};

struct CUpti_Subscriber_st {
    CUpti_CallbackFunc callback;
    void *user;
};

static struct CUpti_Subscriber_st subscriber;               /* callback: atomic; NULL: nobody */
static uint64_t wanted[CUPTI_CB_DOMAIN_SIZE][IDS_MAX / 64]; /* atomic; by domain and id */
static const char *runtime_names[IDS_MAX];                  /* atomic; filled as calls are seen */
static uint16_t driver_ids[WEIR_PROFILE_SYMBOLS]; /* atomic; id + 1 by symbol; 0: not looked up */

/* ---------------------------------------------------------------- names and numbers */

uint32_t weir_cupti_driver_id(const struct weir_profile_call *call)
{
    uint16_t *known = &driver_ids[call->symbol % WEIR_PROFILE_SYMBOLS];
    uint16_t id = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (!id) {
        uint16_t found = 0;
        for (uint16_t i = 1; i < N_DRIVER_IDS && !found; i++) {
            found = strcmp(driver_names[i], call->name) == 0 ? i : 0;
        }
        id = (uint16_t)(found + 1);
        __atomic_store_n(known, id, __ATOMIC_RELAXED);
    }
    return id - 1u;
}

static bool is_wanted(CUpti_CallbackDomain domain, uint32_t id)
{
    return id < IDS_MAX &&
           __atomic_load_n(&wanted[domain][id / 64], __ATOMIC_RELAXED) >> id % 64 & 1;
}

static bool wants_domain(CUpti_CallbackDomain domain)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < IDS_MAX / 64; i++) {
        any |= __atomic_load_n(&wanted[domain][i], __ATOMIC_RELAXED);
    }
    return any != 0;
}

bool weir_cupti_callbacks(void)
{
    return __atomic_load_n(&subscriber.callback, __ATOMIC_ACQUIRE) &&
           (wants_domain(CUPTI_CB_DOMAIN_DRIVER_API) || wants_domain(CUPTI_CB_DOMAIN_RUNTIME_API));
}

/* ---------------------------------------------------------------- calling back */

static void call_back(CUpti_CallbackDomain domain, uint32_t id, const void *data)
{
    CUpti_CallbackFunc callback = __atomic_load_n(&subscriber.callback, __ATOMIC_ACQUIRE); /* B1 */
    if (callback && is_wanted(domain, id)) {
        callback(subscriber.user, domain, id, data);
    }
}

/* Lay out the arguments as a struct of them. */
static void pack(const struct weir_profile_call *call, uint8_t params[PARAMS_BYTES])
{
    size_t at = 0;
    memset(params, 0, PARAMS_BYTES);
    for (uint32_t i = 0; i < call->n_words; i++) {
        size_t bytes = call->word_bytes[i];
        at = (at + bytes - 1) / bytes * bytes;
        if (at + bytes <= PARAMS_BYTES) {
            memcpy(params + at, &call->words[i], bytes); /* little-endian */
        }
        at += bytes;
    }
}

static void tell_of_end(const struct weir_profile_call *call)
{
    CUpti_SynchronizeData data = {NULL, NULL};
    if (call->result != CUDA_SUCCESS) {
        return;
    }
    if (call->work.what == WEIR_PROFILE_MAKE_CONTEXT && call->work.is_new) {
        const CUpti_ResourceData made = {.context = *(const CUcontext *)(uintptr_t)call->words[0]};
        call_back(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED, &made);
    } else if (call->work.what == WEIR_PROFILE_WAIT_STREAM) {
        data.stream = (CUstream)(uintptr_t)call->words[0];
        call_back(CUPTI_CB_DOMAIN_SYNCHRONIZE, CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED, &data);
    } else if (call->work.what == WEIR_PROFILE_WAIT_CONTEXT) {
        call_back(CUPTI_CB_DOMAIN_SYNCHRONIZE, CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED, &data);
    }
}

void weir_cupti_driver_callback(const struct weir_profile_call *call, bool at_end)
{
    static __thread uint64_t scratch; /* kept from a call's beginning to its end */
    uint32_t id = weir_cupti_driver_id(call);
    if (id && is_wanted(CUPTI_CB_DOMAIN_DRIVER_API, id)) {
        uint8_t params[PARAMS_BYTES] __attribute__((aligned(8)));
        CUresult result = call->result;
        scratch = at_end ? scratch : 0;
        pack(call, params);
        const CUpti_CallbackData data = {.callbackSite = at_end ? CUPTI_API_EXIT : CUPTI_API_ENTER,
                                         .functionName = call->name,
                                         .functionParams = params,
                                         .functionReturnValue = &result,
                                         .symbolName = call->work.kernel,
                                         .context = NULL,
                                         .contextUid = call->work.context,
                                         .correlationData = &scratch,
                                         .correlationId = call->number};
        call_back(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
    }
    if (at_end) {
        tell_of_end(call);
    }
}

void weir_cupti_runtime_callback(const struct weir_profile_runtime *call)
{
    if (call->id < IDS_MAX) {
        __atomic_store_n(&runtime_names[call->id], call->name, __ATOMIC_RELAXED);
    }
    if (is_wanted(CUPTI_CB_DOMAIN_RUNTIME_API, call->id)) {
        const struct weir_profile_table *session = weir_cupti_session();
        const CUpti_CallbackData data = {
            .callbackSite = call->is_end ? CUPTI_API_EXIT : CUPTI_API_ENTER,
            .functionName = call->name,
            .functionParams = call->params,
            .functionReturnValue = call->result,
            .context = call->context,
            .contextUid = call->context ? session->context_number(call->context) : 0,
            .correlationData = call->scratch,
            .correlationId = call->number};
        call_back(CUPTI_CB_DOMAIN_RUNTIME_API, call->id, &data);
    }
}

/* ---------------------------------------------------------------- entry points */

WEIR_CUPTI_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *handle,
                                             CUpti_CallbackFunc callback, void *userdata);
WEIR_CUPTI_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle);
WEIR_CUPTI_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                                  CUpti_CallbackDomain domain, uint32_t cbid);
WEIR_CUPTI_EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                                                CUpti_CallbackDomain domain);
WEIR_CUPTI_EXPORT CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle handle);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetCallbackState(uint32_t *enable, CUpti_SubscriberHandle handle,
                                                    CUpti_CallbackDomain domain, uint32_t cbid);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                                   const char **name);
WEIR_CUPTI_EXPORT CUptiResult cuptiFinalize(void);

static void want_all(CUpti_CallbackDomain domain, bool enable)
{
    for (uint32_t i = 0; i < IDS_MAX / 64; i++) {
        __atomic_store_n(&wanted[domain][i], enable ? UINT64_MAX : 0, __ATOMIC_RELAXED);
    }
}

/* Is this the subscriber, and a domain that has callbacks here? */
static CUptiResult check(const struct CUpti_Subscriber_st *handle, CUpti_CallbackDomain domain)
{
    if (handle != &subscriber || !subscriber.callback || (int)domain <= CUPTI_CB_DOMAIN_INVALID ||
        (int)domain >= CUPTI_CB_DOMAIN_SIZE) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    return NEVER_WATCHED >> domain & 1 ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback,
                           void *userdata)
{
    CUpti_CallbackFunc nobody = NULL;
    WEIR_FAIL_IF(!handle || !callback, CUPTI_ERROR_INVALID_PARAMETER);
    WEIR_FAIL_IF(!weir_cupti_session(), CUPTI_ERROR_NOT_INITIALIZED);
    WEIR_FAIL_IF(__atomic_load_n(&subscriber.callback, __ATOMIC_RELAXED),
                 CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    subscriber.user = userdata;
    /* B1: publishes user. */
    if (!__atomic_compare_exchange_n(&subscriber.callback, &nobody, callback, false,
                                     __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    *handle = &subscriber;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle)
{
    WEIR_TRY(check(handle, CUPTI_CB_DOMAIN_DRIVER_API));
    __atomic_store_n(&subscriber.callback, NULL, __ATOMIC_RELEASE);
    for (int domain = 0; domain < CUPTI_CB_DOMAIN_SIZE; domain++) {
        want_all((CUpti_CallbackDomain)domain, false);
    }
    weir_cupti_watch();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                CUpti_CallbackDomain domain, uint32_t cbid)
{
    CUptiResult result = check(handle, domain);
    if (result == CUPTI_ERROR_NOT_SUPPORTED && domain == CUPTI_CB_DOMAIN_NVTX) {
        return CUPTI_SUCCESS; /* never called; Triton's proton records nothing if it is refused */
    }
    if (result != CUPTI_SUCCESS || cbid >= IDS_MAX) {
        return result != CUPTI_SUCCESS ? result : CUPTI_ERROR_INVALID_PARAMETER;
    }
    if (enable) {
        __atomic_fetch_or(&wanted[domain][cbid / 64], UINT64_C(1) << cbid % 64, __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_and(&wanted[domain][cbid / 64], ~(UINT64_C(1) << cbid % 64),
                           __ATOMIC_RELAXED);
    }
    weir_cupti_watch();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                              CUpti_CallbackDomain domain)
{
    WEIR_TRY(check(handle, domain));
    want_all(domain, enable != 0);
    weir_cupti_watch();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle handle)
{
    CUptiResult result = check(handle, CUPTI_CB_DOMAIN_DRIVER_API);
    for (int domain = 1; result == CUPTI_SUCCESS && domain < CUPTI_CB_DOMAIN_SIZE; domain++) {
        if (!(NEVER_WATCHED >> domain & 1)) {
            want_all((CUpti_CallbackDomain)domain, enable != 0);
        }
    }
    weir_cupti_watch();
    return result;
}

CUptiResult cuptiGetCallbackState(uint32_t *enable, CUpti_SubscriberHandle handle,
                                  CUpti_CallbackDomain domain, uint32_t cbid)
{
    WEIR_TRY(enable ? check(handle, domain) : CUPTI_ERROR_INVALID_PARAMETER);
    *enable = is_wanted(domain, cbid);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name)
{
    const char *found = NULL;
    WEIR_FAIL_IF(!name, CUPTI_ERROR_INVALID_PARAMETER);
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid < N_DRIVER_IDS) {
        found = driver_names[cbid];
    } else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && cbid < IDS_MAX) {
        found = __atomic_load_n(&runtime_names[cbid], __ATOMIC_RELAXED);
    }
    *name = found;
    return found ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiFinalize(void)
{
    if (__atomic_load_n(&subscriber.callback, __ATOMIC_RELAXED)) {
        (void)cuptiUnsubscribe(&subscriber);
    }
    return CUPTI_SUCCESS;
}
