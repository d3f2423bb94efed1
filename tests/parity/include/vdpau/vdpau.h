/* Stands in for VDPAU's header. The description has pointers to
 * VdpGetProcAddress as void pointers. */
#ifndef WEIR_TESTS_PARITY_VDPAU_H
#define WEIR_TESTS_PARITY_VDPAU_H
typedef unsigned int VdpDevice;
typedef void VdpGetProcAddress;
typedef unsigned int VdpVideoSurface;
typedef unsigned int VdpOutputSurface;
#endif
