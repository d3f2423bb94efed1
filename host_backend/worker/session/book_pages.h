/* The pages of a session's book (book.h), for its own files. Session thread only. */
#pragma once

#include "host_backend/worker/session/book.h"

/* A reference of a record to the page of another object, which may not be forgotten before it. */
struct weir_book_reference {
    struct weir_book_reference *older, **back; /* to the same page */
    struct weir_book_page *page;
    const struct weir_kept_record *from;
};

struct weir_book_page {
    struct weir_book_page *next, **back; /* all of the book */
    struct weir_book_page *todo;         /* in a list of pages to look at, or to free */
    struct weir_kept_record *records;    /* newest first */
    struct weir_kept_record *end;        /* the one that has ended the object; NULL: it lives */
    struct weir_book_reference *readers; /* newest first */
    struct weir_host_image *image;       /* of a module; a reference; or NULL */
    const char *why; /* why the object cannot be made again, beside records' reasons; or NULL */
    uint64_t other;  /* number of the newest record that is no WEIR_OP_SETS */
    uint64_t past;   /* number of the newest one that depends on what the object was before */
    uint64_t look;   /* the search that has seen the page */
    uint32_t refs;   /* of the object, and of records on other pages */
    uint32_t n_stays, n_ranged; /* records with a reason to stay, with ranges */
    bool of_graph;              /* the object is a graph, executable or not */
};

/** Make a page for an object, or NULL: there is no memory. */
struct weir_book_page *weir_book_page_create(struct weir_session_book *book);
/** Drop a reference to a page. weir_book_pages_free() frees it. */
void weir_book_page_let_go(struct weir_session_book *book, struct weir_book_page *page);
/** Free the pages that nobody needs. */
void weir_book_pages_free(struct weir_session *session);
/** Free all. */
void weir_book_pages_end(struct weir_session *session);

/** Put a record on its page, with references to the pages that it names (book->named). false: there
 * is no memory */
bool weir_book_record_put(struct weir_session_book *book, struct weir_kept_record *record);
/** Take one holder from a record; without one it is freed. */
void weir_book_record_drop(struct weir_session_book *book, struct weir_kept_record *record);
/** Forget the earlier records for which this one stands, before it is put.
 * @return it says what the newest of them says, and nothing happened in between */
bool weir_book_record_replaces(struct weir_session_book *book,
                               const struct weir_kept_record *record);
