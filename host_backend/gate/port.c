#include "host_backend/gate/port.h"

#include "base/clock.h"
#include "host_backend/config/shared_page.h"
#include <limits.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* defined here because the C library is older than 2.35 */
#define MADV_POPULATE_WRITE 23
#endif

/* Populate the ring's pages before they are used: a fault at the first use of one would delay a
 * launch, or the gate. If that fails (Linux before 5.14, no memory), the faults occur later. */
static void fault_in(struct weir_gate_port *port)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)port->request & ~(page - 1);

    (void)madvise((void *)begin, (uintptr_t)(port + 1) - begin, MADV_POPULATE_WRITE);
}

enum weir_status weir_gate_port_create(int *ret_fd, int *ret_bell)
{
    struct weir_gate_port *port;
    void *page;

    *ret_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    WEIR_FAIL_IF(*ret_bell < 0, WEIR_ERR_IO);
    enum weir_status status =
        weir_shared_page_create("weir-gate-port", sizeof *port, ret_fd, &page);
    if (status != WEIR_OK) {
        close(*ret_bell);
        return status;
    }
    port = page;
    port->version = WEIR_GATE_PORT_VERSION;
    weir_gate_port_unmap(port);
    return WEIR_OK;
}

enum weir_status weir_gate_port_map(int fd, struct weir_gate_port **ret_port)
{
    void *page;
    WEIR_TRY(weir_shared_page_map(fd, sizeof **ret_port, &page));
    *ret_port = page;
    if ((*ret_port)->version != WEIR_GATE_PORT_VERSION) {
        weir_gate_port_unmap(*ret_port);
        return WEIR_ERR_VERSION;
    }
    fault_in(*ret_port);
    return WEIR_OK;
}

void weir_gate_port_unmap(struct weir_gate_port *port)
{
    if (port) {
        (void)munmap(port, sizeof *port);
    }
}

/* ---------------------------------------------------------------- requests */

bool weir_gate_port_post(struct weir_gate_port *port, int bell,
                         const struct weir_gate_request *request)
{
    uint32_t head = atomic_load_explicit(&port->head, memory_order_relaxed);
    const uint64_t one = 1;

    /* P1: meets the release in weir_gate_port_take(): the place has been read. */
    if (head - atomic_load_explicit(&port->tail, memory_order_acquire) >= WEIR_GATE_PORT_REQUESTS) {
        return false;
    }
    port->request[head % WEIR_GATE_PORT_REQUESTS] = *request;
    /* P2: publishes the request; meets the acquire in weir_gate_port_take(). Sequentially
     * consistent, like the store and load of a gate that goes to sleep: at least one of the two
     * sees what the other has written. */
    atomic_store(&port->head, head + 1);
    if (atomic_load(&port->asleep) != 0 && atomic_exchange(&port->asleep, 0) != 0) {
        (void)!write(bell, &one, sizeof one); /* if the counter is full, the gate wakes, too */
    }
    return true;
}

bool weir_gate_port_take(struct weir_gate_port *port, uint32_t *tail,
                         struct weir_gate_request *ret_request)
{
    uint32_t head = atomic_load(&port->head); /* P2 */
    bool any = head - *tail <= WEIR_GATE_PORT_REQUESTS;

    WEIR_FAIL_IF(head == *tail, false);
    if (any) {
        *ret_request = port->request[*tail % WEIR_GATE_PORT_REQUESTS];
    }
    *tail = any ? *tail + 1 : head; /* no valid worker posts more than fits: skip all of it */
    atomic_store_explicit(&port->tail, *tail, memory_order_release); /* P1 */
    return any;
}

/* ---------------------------------------------------------------- orders */

bool weir_gate_port_send(struct weir_gate_port *port, uint32_t device,
                         const struct weir_gate_order *order)
{
    struct weir_gate_orders *orders = &port->orders[device];
    uint32_t head = atomic_load_explicit(&orders->head, memory_order_relaxed);

    if (head - atomic_load_explicit(&orders->tail, memory_order_acquire) >= WEIR_GATE_PORT_ORDERS) {
        return false;
    }
    orders->ring[head % WEIR_GATE_PORT_ORDERS] = *order;
    atomic_store(&orders->head, head + 1); /* P3: meets the load in weir_gate_port_order() */
    return true;
}

bool weir_gate_port_order(struct weir_gate_port *port, uint32_t device,
                          struct weir_gate_order *ret_order)
{
    struct weir_gate_orders *orders = &port->orders[device];
    uint32_t tail = atomic_load_explicit(&orders->tail, memory_order_relaxed);

    if (atomic_load(&orders->head) == tail) { /* P3 */
        return false;
    }
    *ret_order = orders->ring[tail % WEIR_GATE_PORT_ORDERS];
    atomic_store_explicit(&orders->tail, tail + 1, memory_order_release);
    return true;
}

bool weir_gate_port_tell(struct weir_gate_port *port, uint32_t device,
                         const uint8_t row[WEIR_PREDICT_ROW_BYTES])
{
    struct weir_gate_known *known = &port->known[device];
    uint32_t head = atomic_load_explicit(&known->head, memory_order_relaxed);

    if (head - atomic_load_explicit(&known->tail, memory_order_acquire) >= WEIR_GATE_PORT_KNOWN) {
        return false;
    }
    memcpy(known->ring[head % WEIR_GATE_PORT_KNOWN], row, WEIR_PREDICT_ROW_BYTES);
    /* P5: publishes the row; meets the acquire in weir_gate_port_known(). */
    atomic_store_explicit(&known->head, head + 1, memory_order_release);
    return true;
}

bool weir_gate_port_known(struct weir_gate_port *port, uint32_t device,
                          uint8_t ret_row[WEIR_PREDICT_ROW_BYTES])
{
    struct weir_gate_known *known = &port->known[device];
    uint32_t tail = atomic_load_explicit(&known->tail, memory_order_relaxed);

    if (atomic_load_explicit(&known->head, memory_order_acquire) == tail) { /* P5 */
        return false;
    }
    memcpy(ret_row, known->ring[tail % WEIR_GATE_PORT_KNOWN], WEIR_PREDICT_ROW_BYTES);
    atomic_store_explicit(&known->tail, tail + 1, memory_order_release);
    return true;
}

void weir_gate_port_call(struct weir_gate_port *port)
{
    __atomic_fetch_add(&port->attention, 1, __ATOMIC_SEQ_CST);
    if (atomic_load(&port->watchers) != 0) {
        weir_futex_wake(&port->attention, INT_MAX);
    }
}

void weir_gate_slot_changed(struct weir_gate_slot *slot)
{
    __atomic_fetch_add(&slot->word, 1, __ATOMIC_SEQ_CST);
    if (atomic_load(&slot->sleeps) != 0) {
        weir_futex_wake(&slot->word, 1);
    }
}
