/*
 * What stream captures forbid a thread.
 *
 * A call that no graph can contain, as cuMemAlloc or cuEventQuery, is potentially unsafe while a
 * stream is captured: the captured work may depend on what it does. Each capture has a mode, and so
 * has each thread. If they forbid the call, it gives CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the
 * capture is invalidated. proto/api marks these calls (`unsafe_in_capture`); calls whose safety
 * depends on more than that they are made test it on their own. They are the calls that NVIDIA's
 * driver 580 refused on an H200 (2026-11-29).
 *
 * Source: CUDA's documentation of cuThreadExchangeStreamCaptureMode.
 */
#ifndef WEIR_PROTO_COMMON_CAPTURE_MODE_H
#define WEIR_PROTO_COMMON_CAPTURE_MODE_H

#include "proto/cuda_abi.h"
#include <pthread.h>
#include <stdbool.h>

/**
 * cuThreadExchangeStreamCaptureMode().
 *
 * @param mode  the calling thread's new mode; gets the one before.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_VALUE  NULL, or no mode
 * @thread any
 */
CUresult weir_capture_mode_exchange(CUstreamCaptureMode *mode);

/**
 * Does a capture forbid the calling thread potentially unsafe calls?
 *
 * @param mode   that the capture was begun with.
 * @param begun  the thread that began it.
 * @thread any
 */
bool weir_capture_forbids(CUstreamCaptureMode mode, pthread_t begun);

#endif
