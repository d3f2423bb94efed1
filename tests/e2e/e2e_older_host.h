/* Stands before worker_process.c in e2e_older_host: the version is known when that runs. */
extern unsigned weir_test_link_version;
