/* All work goes to the device through here: see submit.h. */
#include "host_backend/worker/submit/submit.h"

#include "host_backend/worker/device/admission.h"
#include "host_backend/worker/device/fault.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/place.h"
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/profile/profile.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/session/graph_holds.h"
#include "host_backend/worker/twins/forms.h"
#include "host_backend/worker/twins/orders.h"
#include <string.h>

/* ---------------------------------------------------------------- twin? */

/* Choose a twin if the scheduler may want to stop the kernel. */
static bool choose_twin(struct weir_session *s, const struct weir_host_stream *stream,
                        const struct weir_submit_kernel *k, struct weir_forms_choice *ret_choice)
{
    ret_choice->times_original = ret_choice->divisible = false;
    if (!k->function->forms) {
        weir_forms_note(s, WEIR_FORMS_LAUNCHED_NO_TWIN);
        return false;
    }
    uint32_t cost_pct = weir_forms_is_auto(s, k->function)
                            ? weir_admission_run_cost_pct(s, &k->function->hint)
                            : UINT32_MAX;
    if (cost_pct == 0) {
        weir_forms_note(s, WEIR_FORMS_LAUNCHED_ALONE);
        return false;
    }
    return weir_forms_choose(s, k->function, k->native, stream, k->in, cost_pct, ret_choice);
}

/* How many of the kernel's blocks fit on an SM. Asked once for kernels whose block size stays the
 * same. */
static uint32_t blocks_per_sm(struct weir_session *s, const struct weir_submit_kernel *k,
                              uint64_t key)
{
    uint64_t threads = (uint64_t)k->in->block[0] * k->in->block[1] * k->in->block[2];
    struct weir_gate_hint *hint = &k->function->hint;
    int blocks = 0;

    if (hint->fit_key != key && threads <= INT32_MAX) {
        if (s->driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &blocks, k->native, (int)threads, k->in->shared_bytes) != CUDA_SUCCESS) {
            blocks = 0;
        }
        hint->fit_key = key;
        hint->blocks_per_sm = (uint32_t)blocks;
    }
    return hint->blocks_per_sm;
}

/* Choose the kernel's form, and describe the work to the gate accordingly. @return whether it is a
 * twin */
static bool choose_form(struct weir_session *s, const struct weir_host_stream *stream,
                        const struct weir_submission *what, struct weir_gate_work *work,
                        struct weir_forms_choice *ret_choice)
{
    bool twin = choose_twin(s, stream, what->kernel, ret_choice);

    if (twin) {
        work->flags = WEIR_SCHED_STOPPABLE |
                      (ret_choice->form == WEIR_PTX_FORM_PERSISTENT ? WEIR_SCHED_MOVABLE : 0);
        work->blocks_per_sm = ret_choice->blocks_per_sm;
        work->bytes = ret_choice->block_bytes;
        work->flags |= weir_admission_is_partable(s) ? WEIR_SCHED_PARTABLE : 0;
    } else if (weir_admission_contends(s) && !what->may_print) {
        work->blocks_per_sm = blocks_per_sm(s, what->kernel, work->key);
        work->flags |=
            work->blocks_per_sm != 0 && weir_admission_is_partable(s) ? WEIR_SCHED_PARTABLE : 0;
        work->flags |= ret_choice->divisible ? WEIR_SCHED_DIVISIBLE : 0;
    }
    return twin;
}

/* ---------------------------------------------------------------- faults */

struct name_search {
    const char *name;
    uint64_t found;
};

static void look_at_name(weir_handle handle, void *object, void *user)
{
    const struct weir_host_function *function = object;
    struct name_search *search = user;

    if (function->name && strcmp(function->name, search->name) == 0) {
        search->found = handle;
    }
}

/* Find the handle of a function by its name; 0: none. @param guess a handle that it may have */
static uint64_t function_named(struct weir_session *session, const char *name, uint64_t guess)
{
    const struct weir_host_function *guessed =
        guess != 0 ? weir_host_object_get(session, WEIR_KIND_FUNCTION, guess) : NULL;
    struct name_search search = {.name = name};

    if (guessed && guessed->name && strcmp(guessed->name, name) == 0) {
        return guess;
    }
    weir_host_objects_visit(session, WEIR_KIND_FUNCTION, look_at_name, &search);
    return search.found;
}

/* Note a kernel or graph in case it faults, unless it is captured. @return whether it was noted */
static bool note_kernel(struct weir_session *s, struct weir_host_stream *stream,
                        const struct weir_submission *what)
{
    const struct weir_host_function *f = what->kernel ? what->kernel->function : NULL;
    bool runs_code = what->work.class == WEIR_SCHED_KERNEL || what->work.class == WEIR_SCHED_GRAPH;

    WEIR_FAIL_IF(!runs_code, false);
    if (s->devices.book) {
        s->devices.book->ran = true;
    }
    if (weir_host_stream_capturing(s, stream)) {
        weir_fault_kernel_in_graph(s, f && f->may_assert);
        return false;
    }
    weir_fault_kernel_given(s, stream, f ? f->name : NULL, f ? f->hint.kernel : 0,
                            f && f->may_assert);
    return true;
}

/* ---------------------------------------------------------------- the call */

/* The mode "explore" runs some kernels and graphs on parts of the device, as a scheduler might. */
static void explore_parts(struct weir_session *s, struct weir_host_stream *stream,
                          const struct weir_submission *what, struct weir_admission *admission)
{
    uint64_t draw;

    if ((what->work.class != WEIR_SCHED_KERNEL && !what->ret_part) || what->may_print ||
        !weir_place_has_parts(s) || s->n_captures != 0 || !weir_forms_explores(s, &draw) ||
        (draw & 1) == 0) {
        return;
    }
    struct weir_part *part = weir_place_any_part(s, stream, draw >> 1);
    if (what->work.class == WEIR_SCHED_KERNEL) {
        weir_place_stream(s, stream, part);
        weir_part_put(part);
    } else {
        weir_part_put(admission->part);
        admission->part = part;
    }
}

static CUresult call_driver(struct weir_session *s, struct weir_host_stream *stream,
                            const struct weir_submission *what, struct weir_admission *admission)
{
    explore_parts(s, stream, what, admission);
    if (what->ret_part) {
        *what->ret_part = admission->part;
    }
    CUresult result = what->call(s, weir_host_stream_at(stream), what->user);
    if (result != CUDA_SUCCESS && weir_host_stream_at(stream) != stream->o.native) {
        weir_admission_stream_whole(s, stream); /* a cluster of blocks may not fit the part */
        result = what->call(s, stream->o.native, what->user);
    }
    return result;
}

/* Launch the original of a kernel, or other work that has no twin. */
static CUresult give_original(struct weir_session *s, struct weir_host_stream *stream,
                              const struct weir_submission *what, struct weir_admission *admission,
                              struct weir_forms_choice *choice)
{
    const struct weir_sched_place *place = &admission->pass.place;
    bool timed = what->kernel && place->sm_count == 0 && place->block_limit == 0 &&
                 weir_forms_original_begins(s, choice, stream);
    CUresult result = call_driver(s, stream, what, admission);

    if (what->kernel && choice->divisible) {
        weir_forms_granted(choice, place->sm_count, place->block_limit);
    }
    if (timed) {
        weir_forms_original_given(s, choice, stream, result == CUDA_SUCCESS);
    }
    return result;
}

/* How many kernels, copies and memsets work is that is no twin; 0: not known. */
static uint32_t expected_records(const struct weir_submission *what)
{
    return what->work.class == WEIR_SCHED_GRAPH ? what->works : 1;
}

/* Give work to the driver, once it is ordered behind the stream's earlier work. */
static CUresult give(struct weir_session *s, struct weir_host_stream *stream,
                     const struct weir_submission *what)
{
    struct weir_gate_work work = what->work;
    struct weir_forms_choice choice = {.divisible = false};
    struct weir_admission admission;
    struct weir_profile_span *span = NULL;
    bool twin = false, noted;

    if (what->kernel) {
        twin = choose_form(s, stream, what, &work, &choice);
    }
    if (__builtin_expect(s->op.profile != 0, 0)) {
        span = weir_profile_arrives(s, stream, &what->work, function_named);
    } else if (__builtin_expect(s->devices.profile != NULL, 0)) {
        weir_profile_rests(s);
    }
    work.flags |= s->devices.has_peers ? WEIR_SCHED_PEERS : 0;
    CUresult result = weir_admission_enter(s, stream, &work, what->priority, &admission);
    if (result != CUDA_SUCCESS) {
        if (span) {
            weir_profile_given(s, stream, span, false);
        }
        return result;
    }
    if (span) {
        weir_profile_begins(s, stream, span, &admission.pass, twin ? 0 : expected_records(what));
    }
    noted = note_kernel(s, stream, what);
    twin =
        twin && !admission.in_part &&
        weir_forms_launch(s, &choice, stream, what->kernel->in, weir_orders_begin(&admission.pass));
    if (!twin) {
        result = give_original(s, stream, what, &admission, &choice);
    }
    if (span) {
        weir_profile_given(s, stream, span, result == CUDA_SUCCESS);
    }
    if (noted && result != CUDA_SUCCESS) {
        weir_fault_kernel_refused(stream);
    } else if (noted && !twin) {
        weir_mark_original_given(&stream->gate.word);
    }
    weir_admission_leave(&admission, result);
    if (result == CUDA_SUCCESS) {
        weir_forms_written(s, stream);
    }
    return result;
}

CUresult weir_submit(struct weir_session *session, struct weir_host_stream *stream,
                     const struct weir_submission *what)
{
    WEIR_TRY(weir_order_begin(session, stream, what->work.class == WEIR_SCHED_GRAPH));
    if (what->kernel) {
        WEIR_TRY(weir_graph_hold_captured(session, stream, &what->kernel->function->o));
    }
    if (!what->may_print) {
        return give(session, stream, what);
    }
    if (weir_host_stream_capturing(session, stream)) { /* prints when the graph is launched */
        WEIR_TRY(weir_prints_expect(session));
        return give(session, stream, what);
    }
    weir_admission_idle(session); /* weir_prints_begin() may wait for other sessions */
    WEIR_TRY(weir_prints_begin(session, stream->o.native));
    CUresult result = give(session, stream, what);
    weir_prints_end(session, weir_host_stream_at(stream), result == CUDA_SUCCESS);
    return result;
}
