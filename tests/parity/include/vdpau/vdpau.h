/* Stands in for VDPAU's header. The description has pointers to
 * VdpGetProcAddress as void pointers. */
#pragma once
typedef unsigned int VdpDevice;
typedef void VdpGetProcAddress;
typedef unsigned int VdpVideoSurface;
typedef unsigned int VdpOutputSurface;
