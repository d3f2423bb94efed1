/* A session's book: see book.h. */
#include "host_backend/worker/session/book.h"

#include "host_backend/worker/code/variables.h"
#include "host_backend/worker/session/objects.h"
#include <stdlib.h>
#include <string.h>

struct weir_kept_record *weir_session_book_copy(struct weir_session *session,
                                                const struct weir_record *record)
{
    const struct weir_op_info *info = &weir_ops[record->op];
    size_t bytes = info->book == WEIR_OP_STAYS ? sizeof *record : record->len_bytes;
    struct weir_kept_record *copy;

    if (info->book == WEIR_OP_LEAVES_NOTHING || !session->devices.book) {
        return NULL;
    }
    copy = malloc(offsetof(struct weir_kept_record, record) + bytes);
    if (!copy) {
        session->devices.book->is_incomplete = true;
        return NULL;
    }
    copy->why = info->why;
    memcpy(&copy->record, record, bytes);
    return copy;
}

/* Do two records say the same? The rest of their headers differs from record to record. */
static bool is_equal(const struct weir_record *a, const struct weir_record *b)
{
    return a->op == b->op && a->device == b->device && a->len_bytes == b->len_bytes &&
           memcmp(a + 1, b + 1, a->len_bytes - sizeof *a) == 0;
}

/* Find the object's record for which the new one stands, too; the end of the list: there is none.
 * Programs repeat changes, and may ask for a variable's address before each use. */
static struct weir_kept_record **find_same(struct weir_object *object,
                                           const struct weir_kept_record *copy)
{
    struct weir_kept_record **at = &object->records;

    while (*at && !(copy->why ? (*at)->why == copy->why
                              : !(*at)->why && is_equal(&(*at)->record, &copy->record))) {
        at = &(*at)->next;
    }
    return at;
}

void weir_session_book_note(struct weir_session *session, struct weir_kept_record *copy,
                            const union weir_op_any_in *in, CUresult result)
{
    const struct weir_op_field *field = weir_ops[copy->record.op].object;
    struct weir_kept_record **same, *old;
    struct weir_object *object;
    uint64_t handle;

    memcpy(&handle, (const char *)in + field->offset, sizeof handle);
    object = result == CUDA_SUCCESS
                 ? weir_host_object_get(session, (enum weir_kind)field->kind, handle)
                 : NULL;
    if (!object) {
        free(copy);
        return;
    }
    same = find_same(object, copy);
    old = *same;
    if (old) {
        *same = old->next;
        free(old);
    }
    copy->number = ++session->devices.book->n_records;
    copy->next = object->records;
    object->records = copy;
}

static bool is_code(const struct weir_object *o)
{
    return o->kind == WEIR_KIND_MODULE || o->kind == WEIR_KIND_LIBRARY;
}

void weir_session_book_forget(struct weir_object *object)
{
    while (object->records) {
        struct weir_kept_record *record = object->records;

        object->records = record->next;
        free(record);
    }
    if (is_code(object)) {
        weir_variables_destroy(((struct weir_host_module *)object)->variables);
    }
}

/* ---------------------------------------------------------------- all of it */

struct list {
    const struct weir_kept_record **records; /* NULL: they are counted */
    uint32_t n;
};

static void add_records(weir_handle handle, void *object, void *user)
{
    struct list *list = user;

    (void)handle;
    for (const struct weir_kept_record *r = ((struct weir_object *)object)->records; r;
         r = r->next) {
        if (list->records) {
            list->records[list->n] = r;
        }
        list->n++;
    }
}

static void visit_all(struct weir_session *session, struct list *list)
{
    list->n = 0;
    for (int kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        weir_host_objects_visit(session, (enum weir_kind)kind, add_records, list);
    }
}

static int older_first(const void *left, const void *right)
{
    const struct weir_kept_record *const *a = left, *const *b = right;

    return ((*a)->number > (*b)->number) - ((*a)->number < (*b)->number);
}

enum weir_status weir_session_book_list(struct weir_session *session,
                                        const struct weir_kept_record ***ret_records,
                                        uint32_t *ret_n)
{
    struct list list = {NULL, 0};

    visit_all(session, &list);
    list.records = calloc(list.n + 1, sizeof *list.records);
    if (!list.records) {
        return WEIR_ERR_NO_MEMORY;
    }
    visit_all(session, &list);
    qsort(list.records, list.n, sizeof *list.records, older_first);
    *ret_records = list.records;
    *ret_n = list.n;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- what stays */

/* Has code that may have run left something that only its context has? */
static const char *left_by_kernels(const struct weir_object *o)
{
    const struct weir_host_module *m = (const struct weir_host_module *)o;

    return is_code(o) && m->ran != 0 && m->leaves_addresses
               ? "addresses of functions or of the device's heap"
               : NULL;
}

static void look_at(weir_handle handle, void *object, void *user)
{
    const struct weir_object *o = object;
    const char **why = user;

    (void)handle;
    for (const struct weir_kept_record *r = o->records; r && !*why; r = r->next) {
        *why = r->why;
    }
    *why = *why ? *why : left_by_kernels(o);
}

const char *weir_session_book_why(struct weir_session *session)
{
    const char *why = session->devices.book->is_incomplete ? "its book is incomplete" : NULL;

    for (int kind = 1; kind < WEIR_KIND_COUNT && !why; kind++) {
        weir_host_objects_visit(session, (enum weir_kind)kind, look_at, &why);
    }
    return why;
}
