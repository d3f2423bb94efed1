/* The guest library behind the undocumented export tables (proto/front). */
#ifndef WEIR_GUEST_LIB_FRONT_H
#define WEIR_GUEST_LIB_FRONT_H

/** Name this library to proto/front; may be called again. @thread any */
void weir_front_start(void);

#endif
