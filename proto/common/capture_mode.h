/*
 * Which calls stream captures forbid to a thread.
 *
 * A call that no graph can contain, as cuMemAlloc or cuEventQuery, is potentially unsafe while a
 * stream is captured: the captured work may depend on its effect. Each capture has a mode, and so
 * has each thread. If they forbid the call, it gives CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the
 * capture is invalidated. proto/api marks these calls (`unsafe_in_capture`); a call whose safety
 * depends on its arguments tests that itself. The marked calls are those that NVIDIA's driver 580
 * refused on an H200 (2026-11-29).
 *
 * Source: CUDA's documentation of cuThreadExchangeStreamCaptureMode.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <pthread.h>
#include <stdbool.h>

/**
 * cuThreadExchangeStreamCaptureMode().
 *
 * @param mode  the calling thread's new mode; is set to the old one.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_VALUE  mode is NULL, or the value is no mode
 * @thread any
 */
CUresult weir_capture_mode_exchange(CUstreamCaptureMode *mode);

/**
 * Does a capture forbid potentially unsafe calls to the calling thread?
 *
 * @param mode   mode of the capture.
 * @param begun  the thread that began the capture.
 * @thread any
 */
bool weir_capture_forbids(CUstreamCaptureMode mode, pthread_t begun);
