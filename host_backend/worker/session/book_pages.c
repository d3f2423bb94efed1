/* The pages of a session's book, and what its records refer to: see book_pages.h. */
#include "host_backend/worker/session/book_pages.h"

#include "base/hash.h"
#include "host_backend/worker/code/images.h"
#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 64u

struct weir_book_page *weir_book_page_create(struct weir_session_book *book)
{
    struct weir_book_page *page = calloc(1, sizeof *page);

    if (!page) {
        book->is_incomplete = true;
        return NULL;
    }
    page->refs = 1;
    page->back = &book->pages;
    page->next = book->pages;
    if (page->next) {
        page->next->back = &page->next;
    }
    book->pages = page;
    return page;
}

void weir_book_page_let_go(struct weir_session_book *book, struct weir_book_page *page)
{
    if (--page->refs == 0) {
        page->todo = book->unneeded;
        book->unneeded = page;
    }
}

/* ---------------------------------------------------------------- records with a key */

/* Put all records of a slot into a larger table. Of equal keys the newest stays first. */
static void put_slot(struct weir_kept_record *records, struct weir_kept_record **slots, uint32_t n)
{
    struct weir_kept_record *oldest_first = NULL;

    while (records) {
        struct weir_kept_record *r = records;

        records = r->same;
        r->same = oldest_first;
        oldest_first = r;
    }
    while (oldest_first) {
        struct weir_kept_record *r = oldest_first;
        struct weir_kept_record **slot = &slots[weir_hash_slot(r->key, n)];

        oldest_first = r->same;
        r->same = *slot;
        *slot = r;
    }
}

static bool grow_table(struct weir_session_book *book)
{
    uint32_t n = book->n_slots != 0 ? 2 * book->n_slots : SLOTS_FIRST;
    struct weir_kept_record **slots;

    if (book->n_keyed < book->n_slots) {
        return true;
    }
    slots = calloc(n, sizeof(struct weir_kept_record *));
    if (!slots) {
        return false;
    }
    for (uint32_t i = 0; i < book->n_slots; i++) {
        put_slot(book->slots[i], slots, n);
    }
    free(book->slots);
    book->slots = slots;
    book->n_slots = n;
    return true;
}

static struct weir_kept_record **slot_of(struct weir_session_book *book, uint64_t key)
{
    return &book->slots[weir_hash_slot(key, book->n_slots)];
}

static void leave_table(struct weir_session_book *book, const struct weir_kept_record *record)
{
    struct weir_kept_record **at = slot_of(book, record->key);

    while (*at != record) {
        at = &(*at)->same;
    }
    *at = record->same;
    book->n_keyed--;
}

/* ---------------------------------------------------------------- records */

void weir_book_record_drop(struct weir_session_book *book, struct weir_kept_record *record)
{
    if (--record->holders != 0) {
        return;
    }
    for (uint32_t i = 0; i < record->n_references; i++) {
        struct weir_book_reference *r = &record->references[i];

        *r->back = r->older;
        if (r->older) {
            r->older->back = r->back;
        }
        weir_book_page_let_go(book, r->page);
    }
    free(record->references);
    free(record->ranges);
    free(record->names);
    free(record);
}

static void take_off(struct weir_session_book *book, struct weir_book_page *page,
                     struct weir_kept_record *record)
{
    *record->back = record->next;
    if (record->next) {
        record->next->back = record->back;
    }
    page->n_stays -= record->why != NULL;
    page->n_ranged -= record->n_ranges != 0;
    record->page = NULL;
    book->n_past -= record->is_past;
    if (record->key != 0) {
        leave_table(book, record);
    }
    weir_book_record_drop(book, record);
}

/* Do records of a page lead to another page? Only those of graphs lead to graphs. */
static bool leads_to(struct weir_session_book *book, struct weir_book_page *from,
                     const struct weir_book_page *to)
{
    struct weir_book_page *todo = from;

    book->n_looks++;
    from->todo = NULL;
    from->look = book->n_looks;
    while (todo && todo != to) {
        struct weir_book_page *page = todo;

        todo = page->todo;
        for (const struct weir_kept_record *r = page->records; r; r = r->next) {
            for (uint32_t i = 0; i < r->n_references; i++) {
                struct weir_book_page *next = r->references[i].page;

                if (next->of_graph && next->look != book->n_looks) {
                    next->look = book->n_looks;
                    next->todo = todo;
                    todo = next;
                }
            }
        }
    }
    return todo != NULL;
}

/* Pages that refer to each other in a circle would never be freed. A graph makes one that gets a
 * copy of itself as a child. */
static bool closes_circle(struct weir_session_book *book, struct weir_book_page *page,
                          struct weir_book_page *other)
{
    return page->of_graph && page->refs > 1 && other->of_graph && leads_to(book, other, page);
}

static bool refer(struct weir_session_book *book, struct weir_kept_record *record)
{
    struct weir_book_page *page = record->page;

    if (book->n_named == 0) {
        return true;
    }
    record->references = calloc(book->n_named, sizeof *record->references);
    for (uint32_t i = 0; i < book->n_named && record->references; i++) {
        struct weir_book_page *other = book->named[i];
        struct weir_book_reference *r = &record->references[record->n_references];

        if (other == page) {
            continue;
        }
        if (closes_circle(book, page, other)) {
            page->why = "graphs within themselves";
            continue;
        }
        *r = (struct weir_book_reference){other->readers, &other->readers, other, record};
        if (r->older) {
            r->older->back = &r->older;
        }
        other->readers = r;
        other->refs++;
        record->n_references++;
    }
    return record->references != NULL;
}

bool weir_book_record_put(struct weir_session_book *book, struct weir_kept_record *record)
{
    struct weir_book_page *page = record->page;
    enum weir_op_book kind = weir_ops[record->record.op].book;

    if (!grow_table(book) || !refer(book, record)) {
        record->page = NULL;
        return false;
    }
    record->holders++;
    record->back = &page->records;
    record->next = page->records;
    if (record->next) {
        record->next->back = &record->next;
    }
    page->records = record;
    page->n_stays += record->why != NULL;
    page->n_ranged += record->n_ranges != 0;
    page->other = kind == WEIR_OP_SETS ? page->other : record->number;
    if (kind == WEIR_OP_IS_PAST) {
        page->past = record->number;
        record->is_past = true;
        book->n_past++;
    }
    if (record->key != 0) {
        struct weir_kept_record **slot = slot_of(book, record->key);

        record->same = *slot;
        *slot = record;
        book->n_keyed++;
    }
    return true;
}

/* Do two records say the same? The rest of their headers differs from record to record. */
static bool is_equal(const struct weir_record *a, const struct weir_record *b)
{
    return a->device == b->device && a->len_bytes == b->len_bytes &&
           memcmp(a + 1, b + 1, a->len_bytes - sizeof *a) == 0;
}

/*
 * An earlier record of the same key is needed only if another page's record needs the object as it
 * was between that one and the next of its kind. Both lists are in the order of time, so one walk
 * through them finds out.
 */
bool weir_book_record_replaces(struct weir_session_book *book,
                               const struct weir_kept_record *record)
{
    struct weir_book_page *page = record->page;
    const struct weir_book_reference *reader = page->readers;
    const struct weir_kept_record *next = record;
    struct weir_kept_record *r = book->n_slots != 0 ? *slot_of(book, record->key) : NULL, *older;

    for (; r; r = older) {
        older = r->same;
        if (r->key != record->key || r->page != page) {
            continue;
        }
        if (record->why ||
            (next == record && r->number > page->other && is_equal(&r->record, &record->record))) {
            return true;
        }
        while (reader && reader->from->number > next->number) {
            reader = reader->older;
        }
        if (r->number > page->past && (!reader || reader->from->number < r->number)) {
            take_off(book, page, r);
        } else {
            book->n_past += !r->is_past;
            r->is_past = true;
            next = r;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- the end of pages */

static void clear(struct weir_session_book *book, struct weir_book_page *page)
{
    for (struct weir_kept_record *r = page->records, *next; r; r = next) {
        next = r->next;
        take_off(book, page, r);
    }
    page->records = NULL;
    if (page->end) {
        book->n_past--;
        weir_book_record_drop(book, page->end);
        page->end = NULL;
    }
}

static void free_page(struct weir_session *session, struct weir_book_page *page)
{
    clear(session->devices.book, page);
    *page->back = page->next;
    if (page->next) {
        page->next->back = page->back;
    }
    if (page->image) {
        weir_image_put(&session->tenant->images, page->image);
    }
    free(page);
}

void weir_book_pages_free(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;

    while (book->unneeded) {
        struct weir_book_page *page = book->unneeded;

        book->unneeded = page->todo;
        free_page(session, page);
    }
}

void weir_book_pages_end(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;

    for (struct weir_book_page *page = book->pages; page; page = page->next) {
        clear(book, page);
    }
    weir_book_pages_free(session);
    for (struct weir_book_page *page = book->pages, *next; page; page = next) {
        next = page->next;
        free_page(session, page); /* its object outlives the session's end */
    }
    free(book->slots);
    book->slots = NULL;
    book->n_slots = 0;
}
