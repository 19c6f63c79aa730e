/*
 * Every select_p_* function of the supported releases that is handed to the
 * stock plugin unchanged. A release that lacks one never calls it.
 * `make check-symbols` compares this with the list in Slurm's source.
 */
#define GT_FORWARDS(X) \
	X(state_restore) X(job_init) X(job_ready) X(job_expand) \
	X(job_resized) X(job_mem_reduce) X(job_signal) X(job_suspend) \
	X(job_resume) X(step_pick_nodes) X(step_start) X(step_finish) \
	X(select_nodeinfo_pack) X(select_nodeinfo_unpack) \
	X(select_nodeinfo_alloc) X(select_nodeinfo_free) \
	X(select_nodeinfo_set_all) X(select_nodeinfo_get) \
	X(select_jobinfo_alloc) X(select_jobinfo_free) X(select_jobinfo_set) \
	X(select_jobinfo_get) X(select_jobinfo_copy) X(select_jobinfo_pack) \
	X(select_jobinfo_unpack) X(select_jobinfo_sprint) \
	X(select_jobinfo_xstrdup) X(get_info_from_plugin) \
	X(update_node_config) X(reconfigure) X(resv_test)

/* Those we look at before or after the stock plugin has done its work */
#define GT_HOOKED(X) \
	X(node_init) X(job_begin) X(job_fini) X(select_nodeinfo_set)

/* The same, but releases from 25.05 on have none */
#define GT_HOOKED_WHERE_THERE(X) X(state_save)
