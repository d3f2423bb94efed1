/* The smaller and the larger of two, searches in arrays and in linked lists, and changes of lists
 * whose members point to the next. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define WEIR_COUNT(array) (sizeof(array) / sizeof(array)[0])
#define WEIR_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define WEIR_MAX(a, b)    ((a) > (b) ? (a) : (b))

/* Is the condition true for an i below n? It is not evaluated for those after the first one. */
#define WEIR_ANY(i, n, condition)                                                                  \
    ({                                                                                             \
        bool any_ = false;                                                                         \
        for (__typeof__((n) + 0) i = 0; i < (n) && !any_; i++) {                                   \
            any_ = (condition);                                                                    \
        }                                                                                          \
        any_;                                                                                      \
    })

/* The first i below n for which the condition is true, or n. */
#define WEIR_FIRST(i, n, condition)                                                                \
    ({                                                                                             \
        __typeof__((n) + 0) i = 0;                                                                 \
        while (i < (n) && !(condition)) {                                                          \
            i++;                                                                                   \
        }                                                                                          \
        i;                                                                                         \
    })

/* Finds the first member of a linked list for which a condition is true; NULL: there is none.
 * `member` is the name that the condition uses for the member that it looks at. */
#define WEIR_LINKED(member, list, condition)                                                       \
    ({                                                                                             \
        __typeof__(&*(list)) member = (list);                                                      \
        while (member && !(condition)) {                                                           \
            member = member->next;                                                                 \
        }                                                                                          \
        member;                                                                                    \
    })

/* Put a member in front of a list. */
#define WEIR_PUSH(list, member)                                                                    \
    do {                                                                                           \
        (member)->next = (list);                                                                   \
        (list) = (member);                                                                         \
    } while (0)

/* Take the first member out of a list: a pointer to it, or NULL. */
#define WEIR_POP(list)                                                                             \
    ({                                                                                             \
        __typeof__(&*(list)) popped_ = (list);                                                     \
        if (popped_) {                                                                             \
            (list) = popped_->next;                                                                \
        }                                                                                          \
        popped_;                                                                                   \
    })

/* Take a member out of a list, if it is in it. `link` names what points to the next one. */
#define WEIR_UNLINK(list, member, link)                                                            \
    do {                                                                                           \
        for (__typeof__(list) *at_ = &(list); *at_; at_ = &(*at_)->link) {                         \
            if (*at_ == (member)) {                                                                \
                *at_ = (member)->link;                                                             \
                break;                                                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)
