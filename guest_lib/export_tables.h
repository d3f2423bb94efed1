/* What the undocumented export tables (proto/common) call in the guest library. */
#ifndef WEIR_GUEST_LIB_EXPORT_TABLES_H
#define WEIR_GUEST_LIB_EXPORT_TABLES_H

/** Name this library to proto/common; may be called again. @thread any */
void weir_guest_export_tables_start(void);

#endif
