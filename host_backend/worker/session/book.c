/* A session's book: see book.h. */
#include "host_backend/worker/session/book_pages.h"

#include "base/grow.h"
#include "base/hash.h"
#include "base/log.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/session/capture.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>
#include <string.h>

/* A capture under way. */
struct weir_book_capture {
    struct weir_book_capture *next;
    uint64_t id;                 /* as weir_capture_read() gives it */
    weir_handle stream;          /* where it began */
    bool given;                  /* into a graph of the program's */
    struct weir_book_page *page; /* of the graph; a reference */
};

/* ---------------------------------------------------------------- pages of objects */

static struct weir_book_page *captured_into(const struct weir_session *session, weir_handle graph)
{
    struct weir_session *s = (struct weir_session *)(uintptr_t)session;

    for (struct weir_book_capture *c = s->devices.book->captures; c; c = c->next) {
        const struct weir_host_stream *stream =
            weir_host_object_get(s, WEIR_KIND_STREAM, c->stream);

        if (stream && stream->capture_graph == graph) {
            return c->page;
        }
    }
    return NULL;
}

/* The page that says how the object was made: a node's is its graph's. NULL: there is none. */
static struct weir_book_page *page_of(const struct weir_session *session,
                                      const struct weir_object *object)
{
    const struct weir_object *o = object;

    while (!o->page && o->owner) {
        o = o->owner;
    }
    if (!o->page && o->kind == WEIR_KIND_GRAPH) {
        return captured_into(session, o->handle);
    }
    return o->page ? o->page : o->ctx ? o->ctx->o.page : NULL;
}

/* The page for records of an object, which is made if the object has none. */
static struct weir_book_page *own_page(struct weir_session *session, struct weir_object *object)
{
    if (object->kind == WEIR_KIND_NODE || object->borrowed) {
        return page_of(session, object);
    }
    if (!object->page) {
        object->page = weir_book_page_create(session->devices.book);
        if (object->page) {
            object->page->of_graph =
                object->kind == WEIR_KIND_GRAPH || object->kind == WEIR_KIND_EXEC;
        }
    }
    return object->page;
}

/* ---------------------------------------------------------------- what a record names */

static uint64_t handle_in(const union weir_op_any_in *in, const struct weir_op_field *field)
{
    uint64_t handle;

    memcpy(&handle, (const char *)in + field->offset, sizeof handle);
    return handle;
}

/* The object of a record, by the description's word; of an end the first that is named. NULL: it
 * does not exist (any more). */
static struct weir_object *object_of(struct weir_session *session, uint16_t op,
                                     const union weir_op_any_in *in)
{
    const struct weir_op_info *info = &weir_ops[op];
    uint32_t fields = info->book == WEIR_OP_ENDS ? UINT32_MAX : info->book_fields;

    for (uint32_t i = 0; i < info->n_in_fields; i++) {
        const struct weir_op_field *field = &info->in_fields[i];

        if ((fields >> i & 1) != 0 && field->kind != 0 && handle_in(in, field) != 0) {
            return weir_host_object_get(session, (enum weir_kind)field->kind, handle_in(in, field));
        }
    }
    return NULL;
}

static void need_page(struct weir_session_book *book, struct weir_book_page *page)
{
    for (uint32_t i = 0; i < book->n_named; i++) {
        if (book->named[i] == page) {
            return;
        }
    }
    if (WEIR_GROW(book->named, book->n_named, book->named_room)) {
        book->named[book->n_named++] = page;
    } else {
        book->is_incomplete = true;
    }
}

void weir_session_book_needs(struct weir_session *session, const struct weir_object *object)
{
    struct weir_session_book *book = session->devices.book;
    struct weir_book_page *page = book && book->current ? page_of(session, object) : NULL;

    if (page) {
        need_page(book, page);
    }
}

/* Collect the pages of all objects that a record's fields name. */
static void read_fields(struct weir_session *session, const struct weir_kept_record *copy,
                        const union weir_op_any_in *in)
{
    const struct weir_op_info *info = &weir_ops[copy->record.op];

    for (uint32_t i = 0; i < info->n_in_fields; i++) {
        const struct weir_op_field *field = &info->in_fields[i];
        const void *at = (const char *)in + field->offset;
        const uint64_t *handles = at;
        uint32_t n = field->kind == 0 ? 0 : 1;

        if (n != 0 && field->shape == WEIR_FIELD_ARRAY) {
            memcpy(&n, (const char *)in + field->count_offset, sizeof n);
            memcpy(&handles, at, sizeof handles);
        }
        for (uint32_t j = 0; j < n; j++) {
            const struct weir_object *o =
                weir_host_object_get(session, (enum weir_kind)field->kind, handles[j]);
            struct weir_book_page *page = o ? page_of(session, o) : NULL;

            if (page) {
                need_page(session->devices.book, page);
            }
            /* A graph of its own is read as it is now: a child graph is a copy. */
            if (page == copy->page && page && o->kind == WEIR_KIND_GRAPH &&
                (info->book_fields >> i & 1) == 0) {
                page->past = copy->number;
            }
        }
    }
}

/* Of equal keys a later record stands for an earlier one. */
static uint64_t key_of(const struct weir_kept_record *copy, const union weir_op_any_in *in)
{
    const struct weir_op_info *info = &weir_ops[copy->record.op];
    uint64_t words[8] = {copy->record.op, (uintptr_t)copy->page};
    uint32_t n = 2;

    for (uint32_t i = 0; !copy->why && i < info->n_in_fields; i++) {
        if ((info->book_fields >> i & 1) != 0) {
            memcpy(&words[n++], (const char *)in + info->in_fields[i].offset,
                   info->in_fields[i].elem_bytes);
        }
    }
    return weir_hash64_of(words, n * sizeof words[0]) | 1;
}

/* ---------------------------------------------------------------- captures */

static struct weir_book_capture *capture_of(struct weir_session *session,
                                            const struct weir_object *stream)
{
    struct weir_book_capture *found = session->devices.book->captures;
    struct weir_capture c;

    if (stream->kind != WEIR_KIND_STREAM || ((const struct weir_host_stream *)stream)->legacy ||
        weir_capture_read(session, (const struct weir_host_stream *)stream, &c) != CUDA_SUCCESS ||
        c.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return NULL;
    }
    while (found && found->id != c.id) {
        found = found->next;
    }
    return found;
}

static struct weir_book_capture *begun_in(const struct weir_session_book *book, weir_handle stream)
{
    struct weir_book_capture *capture = book->captures;

    while (capture && capture->stream != stream) {
        capture = capture->next;
    }
    return capture;
}

static void begin_capture(struct weir_session *session, const struct weir_object *stream,
                          struct weir_object *graph)
{
    struct weir_session_book *book = session->devices.book;
    struct weir_book_capture *capture = calloc(1, sizeof *capture);
    struct weir_capture c;

    if (!capture ||
        weir_capture_read(session, (const struct weir_host_stream *)stream, &c) != CUDA_SUCCESS) {
        book->is_incomplete = true;
        free(capture);
        return;
    }
    *capture = (struct weir_book_capture){
        .next = book->captures, .id = c.id, .stream = stream->handle, .given = graph != NULL};
    capture->page = graph ? own_page(session, graph) : weir_book_page_create(book);
    if (!capture->page) {
        free(capture);
        return;
    }
    capture->page->of_graph = true;
    capture->page->refs += capture->given;
    book->captures = capture;
}

/* A capture is over. Its page is the graph's now; without a graph nobody needs it. What a capture
 * that has failed leaves in a graph of the program's, nobody knows.
 * @param graph  which it has made; or NULL */
static void finish_capture(struct weir_session *session, struct weir_book_capture *capture,
                           struct weir_object *graph)
{
    struct weir_session_book *book = session->devices.book;
    struct weir_book_capture **at = &book->captures;

    while (*at != capture) {
        at = &(*at)->next;
    }
    *at = capture->next;
    if (!graph && capture->given) {
        capture->page->why = "captures that failed";
    }
    if (graph && !graph->page) {
        graph->page = capture->page;
    } else {
        weir_book_page_let_go(book, capture->page);
    }
    free(capture);
}

/* Captures end, too, if their streams do. */
static void finish_lost_captures(struct weir_session *session)
{
    for (struct weir_book_capture *c = session->devices.book->captures, *next; c; c = next) {
        const struct weir_host_stream *stream =
            weir_host_object_get(session, WEIR_KIND_STREAM, c->stream);

        next = c->next;
        if (!stream || !stream->capturing) {
            finish_capture(session, c, NULL);
        }
    }
}

/* ---------------------------------------------------------------- one record */

struct weir_kept_record *weir_session_book_begin(struct weir_session *session,
                                                 const struct weir_record *record,
                                                 const union weir_op_any_in *in)
{
    const struct weir_op_info *info = &weir_ops[record->op];
    struct weir_session_book *book = session->devices.book;
    struct weir_kept_record *copy =
        book->is_incomplete ? NULL
                            : malloc(offsetof(struct weir_kept_record, record) + record->len_bytes);
    struct weir_object *object;

    if (!copy) {
        book->is_incomplete = true;
        return NULL;
    }
    memset(copy, 0, offsetof(struct weir_kept_record, record));
    memcpy(&copy->record, record, record->len_bytes);
    copy->why = info->why;
    copy->holders = 1;
    copy->number = ++book->n_records;
    if (info->book == WEIR_OP_IS_PAST) { /* it may end the object */
        object = object_of(session, record->op, in);
        copy->page = object ? own_page(session, object) : NULL;
    }
    book->current = copy;
    book->made = NULL;
    book->n_named = book->n_given = 0;
    session->op.ranges = NULL;
    session->op.n_ranges = 0;
    session->op.notes_ranges = info->book == WEIR_OP_MAKES || info->book == WEIR_OP_SETS ||
                               info->book == WEIR_OP_NAMES || info->book == WEIR_OP_IS_CAPTURED;
    return copy;
}

/* Find the page of a record that was handled well. NULL: it is not kept. */
static struct weir_book_page *find_page(struct weir_session *session,
                                        const struct weir_kept_record *copy,
                                        const union weir_op_any_in *in)
{
    struct weir_object *object = object_of(session, copy->record.op, in);
    struct weir_session_book *book = session->devices.book;
    const struct weir_book_capture *capture = NULL;

    if (!object || book->made) {
        return book->made ? own_page(session, book->made) : copy->page;
    }
    switch ((int)weir_ops[copy->record.op].book) {
    case WEIR_OP_ENDS: /* a stream that is left to its capture lives on for a while */
        return object->page;
    case WEIR_OP_NAMES:
        if (book->n_given == 0 || object->kind != WEIR_KIND_STREAM) {
            return book->n_given == 0 ? NULL : own_page(session, object);
        }
        capture = capture_of(session, object);
        break;
    case WEIR_OP_IS_CAPTURED:
        capture = capture_of(session, object);
        break;
    case WEIR_OP_CAPTURES:
        if (copy->record.op == WEIR_OP_capture_begin) {
            begin_capture(session, object,
                          weir_host_object_get(session, WEIR_KIND_GRAPH, in->capture_begin.g));
        }
        capture = begun_in(book, object->handle);
        break;
    default:
        return copy->page ? copy->page : own_page(session, object);
    }
    return capture ? capture->page : NULL;
}

/* Move what is known of the memory and of the names to the record. false: there is no memory */
static bool add_details(struct weir_session *session, struct weir_kept_record *copy)
{
    struct weir_session_book *book = session->devices.book;
    size_t ranges = session->op.n_ranges * sizeof *copy->ranges;
    size_t names = book->n_given * sizeof *copy->names;

    if (ranges != 0 && (copy->ranges = malloc(ranges))) {
        memcpy(copy->ranges, session->op.ranges, ranges);
        copy->n_ranges = session->op.n_ranges;
    }
    if (names != 0 && (copy->names = malloc(names))) {
        memcpy(copy->names, book->given, names);
        copy->n_names = book->n_given;
    }
    return copy->n_ranges == session->op.n_ranges && copy->n_names == book->n_given;
}

static bool is_code(const struct weir_object *o)
{
    return o->kind == WEIR_KIND_MODULE || o->kind == WEIR_KIND_LIBRARY;
}

static void add_image(struct weir_session *session, const struct weir_object *object)
{
    const struct weir_host_module *m = (const struct weir_host_module *)object;

    if (is_code(object) && m->image &&
        !object->page->image) { /* a library's module has none of its own */
        object->page->image =
            weir_image_get(&session->tenant->images, &m->image->hash, m->image->bytes);
    }
}

static void keep(struct weir_session *session, struct weir_kept_record *copy,
                 const union weir_op_any_in *in)
{
    struct weir_session_book *book = session->devices.book;
    enum weir_op_book kind = weir_ops[copy->record.op].book;
    const struct weir_object *object;

    if (kind == WEIR_OP_SETS || kind == WEIR_OP_REPLACES || copy->why) {
        copy->key = key_of(copy, in);
        if (weir_book_record_replaces(book, copy)) {
            copy->page = NULL;
            return;
        }
    }
    if (!copy->why) {
        read_fields(session, copy, in);
    }
    if (!add_details(session, copy) || !weir_book_record_put(book, copy)) {
        copy->page = NULL;
        book->is_incomplete = true;
        return;
    }
    if (kind == WEIR_OP_MAKES) {
        object = object_of(session, copy->record.op, in);
        if (object && object->page) {
            add_image(session, object);
        }
    }
    book->is_incomplete |= book->n_past > WEIR_BOOK_PAST_MAX;
}

/* Has the record changed nothing, although its handler has no error? */
static bool changes_nothing(const struct weir_kept_record *copy, const union weir_op_any_out *out)
{
    return copy->record.op == WEIR_OP_graph_exec_update &&
           out->graph_exec_update.result != CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

void weir_session_book_note(struct weir_session *session, struct weir_kept_record *copy,
                            const union weir_op_any_out *out, CUresult result)
{
    const struct weir_op_info *info = &weir_ops[copy->record.op];
    struct weir_session_book *book = session->devices.book;
    bool succeeded = result == CUDA_SUCCESS && !changes_nothing(copy, out);
    struct weir_book_capture *capture;
    union weir_op_any_in in;

    book->current = NULL;
    session->op.notes_ranges = false;
    /* The handler may have overwritten the arrays of its inputs. The copy was decoded before. */
    (void)info->in_decode(&copy->record + 1, copy->record.len_bytes - sizeof copy->record, &in);
    copy->page = succeeded ? find_page(session, copy, &in) : NULL;
    if (copy->page) {
        keep(session, copy, &in);
    } else if (copy->holders > 1 && info->book != WEIR_OP_ENDS) {
        copy->why = "captures that failed"; /* but they have ended what others need */
    }
    book->is_incomplete |= info->book == WEIR_OP_NAMES && book->n_given != 0 && !copy->page;
    if (succeeded && copy->record.op == WEIR_OP_capture_end &&
        (capture = begun_in(book, in.capture_end.s))) {
        finish_capture(session, capture,
                       weir_host_object_get(session, WEIR_KIND_GRAPH, in.capture_end.g));
    }
    finish_lost_captures(session);
    weir_book_record_drop(book, copy);
    weir_book_pages_free(session);
}

void weir_session_book_forget(struct weir_session *session, struct weir_object *object)
{
    struct weir_session_book *book = session->devices.book;
    struct weir_book_page *page = object->page;

    if (!page) {
        return;
    }
    object->page = NULL;
    if (page->refs > 1) { /* others need it as it was */
        page->end = book->current;
        if (page->end) {
            page->end->holders++;
            book->n_past++;
        } else {
            book->is_incomplete = true;
        }
    }
    weir_book_page_let_go(book, page);
    weir_book_pages_free(session);
}

void weir_session_book_end(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;

    if (book) {
        while (book->captures) {
            finish_capture(session, book->captures, NULL);
        }
        weir_book_pages_end(session);
        free(book->named);
        free(book->given);
    }
}

/* ---------------------------------------------------------------- names */

uint64_t weir_session_book_next_name(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;

    return book && book->names.n != 0 ? book->names.n--, *book->names.of++ : 0;
}

void weir_session_book_named(struct weir_session *session, uint64_t handle)
{
    struct weir_session_book *book = session->devices.book;

    if (!book || !book->current) {
        return;
    }
    if (WEIR_GROW(book->given, book->n_given, book->given_room)) {
        book->given[book->n_given++] = handle;
    } else {
        book->is_incomplete = true;
    }
}

void weir_session_book_made(struct weir_session *session, struct weir_object *object)
{
    if (session->devices.book && session->devices.book->current) {
        session->devices.book->made = object;
    }
}

CUresult weir_session_book_number(struct weir_session *session, uint64_t due, uint64_t is,
                                  const char *what, const char *name)
{
    if (due != 0 && due != is) {
        weir_log_info("session: a %s has another number here session=%llu tenant=%s name=\"%s\" "
                      "was=0x%llx is=0x%llx",
                      what, (unsigned long long)session->id, session->tenant->name, name,
                      (unsigned long long)due, (unsigned long long)is);
        return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    }
    weir_session_book_named(session, is);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- all of it */

static int older_first(const void *left, const void *right)
{
    const struct weir_kept_record *const *a = left, *const *b = right;

    return ((*a)->number > (*b)->number) - ((*a)->number < (*b)->number);
}

/* List all records, or count them if the array is NULL. One that has ended several objects comes
 * several times. */
static uint32_t list_all(const struct weir_session_book *book,
                         const struct weir_kept_record **records)
{
    uint32_t n = 0;

    for (const struct weir_book_page *page = book->pages; page; page = page->next) {
        for (const struct weir_kept_record *r = page->records; r; r = r->next, n++) {
            if (records) {
                records[n] = r;
            }
        }
        if (page->end && records) {
            records[n] = page->end;
        }
        n += page->end != NULL;
    }
    return n;
}

enum weir_status weir_session_book_list(struct weir_session *session,
                                        const struct weir_kept_record ***ret_records,
                                        uint32_t *ret_n)
{
    uint32_t all = list_all(session->devices.book, NULL), n = 0;
    const struct weir_kept_record **records = calloc(all + 1u, sizeof *records);

    if (!records) {
        return WEIR_ERR_NO_MEMORY;
    }
    (void)list_all(session->devices.book, records);
    qsort(records, all, sizeof *records, older_first);
    for (uint32_t i = 0; i < all; i++) {
        if (n == 0 || records[n - 1] != records[i]) {
            records[n++] = records[i];
        }
    }
    *ret_records = records;
    *ret_n = n;
    return WEIR_OK;
}

void weir_session_book_images(struct weir_session *session,
                              void (*visit)(const struct weir_host_image *image, void *user),
                              void *user)
{
    for (const struct weir_book_page *page = session->devices.book->pages; page;
         page = page->next) {
        if (page->image) {
            visit(page->image, user);
        }
    }
}

const char weir_book_if_same[] = "if its variables and textures get the same numbers";

/* ---------------------------------------------------------------- what stays */

/* Has code that may have run left something that only its context has? */
static void look_at_code(weir_handle handle, void *object, void *user)
{
    const struct weir_host_module *m = object;
    const char **why = user;

    (void)handle;
    if (!*why && m->ran != 0 && m->leaves_addresses) {
        *why = "addresses of functions or of the device's heap";
    }
}

/* The same of code that was unloaded, and that graphs still run; and of destroyed arrays. */
static void look_at_kept(weir_handle handle, void *object, void *user)
{
    const struct weir_host_module *m = object;
    const char **why = user;

    (void)handle;
    if (!*why && (m->o.kind == WEIR_KIND_ARRAY || m->o.kind == WEIR_KIND_MIPMAP)) {
        *why = "arrays that only graphs still have";
    } else if (!*why && is_code(object)) {
        *why = m->leaves_addresses       ? "addresses of functions or of the device's heap"
               : m->o.charged_bytes != 0 ? "variables of unloaded modules"
                                         : NULL;
    }
}

/* Would the handlers refuse a record because memory that it names has been freed since? */
static bool names_freed_memory(struct weir_session *session, const struct weir_book_page *page)
{
    for (const struct weir_kept_record *r = page->n_ranged != 0 ? page->records : NULL; r;
         r = r->next) {
        for (uint32_t i = 0; i < r->n_ranges; i++) {
            if (weir_session_check_range(session, &r->ranges[i]) != CUDA_SUCCESS) {
                return true;
            }
        }
    }
    return false;
}

static const char *look_at_page(struct weir_session *session, const struct weir_book_page *page)
{
    const struct weir_kept_record *r = page->n_stays != 0 ? page->records : NULL;

    while (r && !r->why) {
        r = r->next;
    }
    return r                             ? r->why
           : page->why                   ? page->why
           : page->end && page->end->why ? page->end->why
           : names_freed_memory(session, page)
               ? "graphs or textures that name memory that was freed"
               : NULL;
}

const char *weir_session_book_why(struct weir_session *session)
{
    const struct weir_session_book *book = session->devices.book;
    const char *why = book->n_past > WEIR_BOOK_PAST_MAX ? "graphs that change without end"
                      : book->is_incomplete             ? "its book is incomplete"
                                                        : NULL;

    for (const struct weir_book_page *page = book->pages; page && !why; page = page->next) {
        why = look_at_page(session, page);
    }
    if (!why) {
        weir_host_objects_visit_kept(session, look_at_kept, &why);
        weir_host_objects_visit(session, WEIR_KIND_MODULE, look_at_code, &why);
        weir_host_objects_visit(session, WEIR_KIND_LIBRARY, look_at_code, &why);
    }
    return why;
}
