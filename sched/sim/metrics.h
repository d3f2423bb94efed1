/*
 * Metrics of a run: throughput and turnaround compared with each tenant alone, and fairness.
 *
 * STP and ANTT are Eyerman's and Eeckhout's (System-Level Performance Metrics for Multiprogram
 * Workloads, IEEE Micro 28(3), 2008), as FLEP uses them: with C_i the time that program i takes for
 * its work,
 *
 *     STP  = sum over i of C_i(alone) / C_i(together)          higher is better; at most n
 *     ANTT = 1/n * sum over i of C_i(together) / C_i(alone)    lower is better; at least 1
 *
 * A tenant is a program; its time is from its first arrival to the last finish of the work that was
 * finished together; C_i(alone) is for the same work, on the same model and scheduler.
 *
 * Source: docs/design/simulation.md
 */
#pragma once

#include "sched/sim/sim.h"

struct weir_sim_tenant_metrics {
    double together_ns; /* time of the work that was finished together with others */
    double alone_ns;    /* time of the same work alone */
    double slowdown;    /* together_ns / alone_ns; 0: the tenant finished nothing */
    double kernel_ntt; /* mean over kernels of turnaround together / alone: FLEP's figures 10, 12 */
    double share;      /* part of all SM time held by tenants: 0 .. 1 */
    double entitled; /* weight / sum of weights of all tenants that ran kernels; of several GPUs the
                        mean by the SM time held there */
    uint64_t wait_p50_ns, wait_p99_ns; /* from arrival to start */
};

struct weir_sim_metrics {
    double stp;
    double antt;
    double kernel_antt;  /* mean of kernel_ntt */
    uint32_t n_programs; /* tenants that finished something: n of stp and antt */
    struct weir_sim_tenant_metrics *tenants;
    uint32_t n_tenants;
};

/**
 * Compute STP and ANTT of programs whose times are known.
 * @param ret_stp, ret_antt  0 when n is 0. Pairs without a time are left out.
 */
void weir_sim_stp_antt(const double *alone_ns, const double *together_ns, uint32_t n,
                       double *ret_stp, double *ret_antt);

/**
 * Run every tenant alone, and compare.
 *
 * @param result     the result of weir_sim_run() with the same load and params.
 * @param ret_error  WEIR_SIM_ERROR_BYTES, unless WEIR_OK.
 * @return as weir_sim_run()
 */
enum weir_status weir_sim_measure(const struct weir_sim_load *load,
                                  const struct weir_sim_params *params,
                                  const struct weir_sim_result *result,
                                  struct weir_sim_metrics *ret_metrics,
                                  char *ret_error) WEIR_MUST_CHECK;

/** Free the metrics. Accepts a zeroed struct. */
void weir_sim_metrics_finish(struct weir_sim_metrics *metrics);
