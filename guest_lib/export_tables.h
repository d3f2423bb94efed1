/* What the undocumented export tables (proto/common) call in the guest library. */
#pragma once

/** Name this library to proto/common; may be called again. @thread any */
void weir_guest_export_tables_start(void);
