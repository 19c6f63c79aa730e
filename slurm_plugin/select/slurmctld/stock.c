#include "stock.h"

#include <dlfcn.h>
#include <unistd.h>

#include "rpc.h"

#define FILE_NAME "select_cons_tres.so"

gt_stock_t gt_stock;

/* A copy of this plugin is not the stock one: each would call the other. */
static bool is_ours(void *handle)
{
	const char *name = dlsym(handle, "plugin_name");

	return name && !strcmp(name, GT_PLUGIN_NAME);
}

/* The first file of our name in PluginDir that is not ours. */
static void *find_behind_us(void)
{
	char *dirs = xstrdup(slurm_conf.plugindir), *save = NULL, *dir;
	void *handle = NULL;

	for (dir = strtok_r(dirs, ":", &save); dir && !handle;
	     dir = strtok_r(NULL, ":", &save)) {
		char *path = xstrdup_printf("%s/%s", dir, FILE_NAME);

		if (access(path, F_OK)) {
			xfree(path);
			continue;
		}
		if (!(handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL)))
			error("gputopo: %s", dlerror());
		else if (is_ours(handle)) {
			dlclose(handle);
			handle = NULL;
		}
		xfree(path);
	}
	xfree(dirs);
	return handle;
}

static bool version_fits(void)
{
	const uint32_t *version = dlsym(gt_stock.handle, "plugin_version");

	if (version && *version == SLURM_VERSION_NUMBER)
		return true;
	error("gputopo: built for Slurm version %x, but the stock select/cons_tres is of version %x: rebuild the plugin for this release",
	      SLURM_VERSION_NUMBER, version ? *version : 0);
	return false;
}

static bool resolve(void)
{
	char *missing = NULL;

#define GT_RESOLVE(name) \
	gt_stock.name = (__typeof__(gt_stock.name)) dlsym( \
		gt_stock.handle, "select_p_" #name);
	GT_FORWARDS(GT_RESOLVE)
	GT_HOOKED(GT_RESOLVE)
	GT_HOOKED_WHERE_THERE(GT_RESOLVE)
	GT_RESOLVE(job_test)
#undef GT_RESOLVE
#define GT_REQUIRE(name) \
	if (!gt_stock.name) \
		xstrfmtcat(missing, "%sselect_p_" #name, missing ? ", " : "");
	GT_HOOKED(GT_REQUIRE)
	GT_REQUIRE(job_test)
#undef GT_REQUIRE
	if (!missing)
		return true;
	error("gputopo: the stock select/cons_tres has no %s", missing);
	xfree(missing);
	return false;
}

extern int gt_stock_open(void)
{
	int (*init)(void);

	if (!(gt_stock.handle = find_behind_us())) {
		error("gputopo: no stock %s behind this one in PluginDir=%s",
		      FILE_NAME, slurm_conf.plugindir);
		return SLURM_ERROR;
	}
	if (!version_fits() || !resolve()) {
		dlclose(gt_stock.handle);
		memset(&gt_stock, 0, sizeof(gt_stock));
		return SLURM_ERROR;
	}
	init = (int (*)(void)) dlsym(gt_stock.handle, "init");
	return init ? init() : SLURM_SUCCESS;
}

extern void gt_stock_close(void)
{
	int (*fini)(void);

	if (!gt_stock.handle)
		return;
	if ((fini = (int (*)(void)) dlsym(gt_stock.handle, "fini")))
		fini();
	dlclose(gt_stock.handle);
	memset(&gt_stock, 0, sizeof(gt_stock));
}

extern int gt_stock_job_test(const gt_test_t *test)
{
	int64_t start_us = gt_now_us();
	int rc;

	rc = gt_stock.job_test(test->job, test->nodes, test->min_nodes,
			       test->max_nodes, test->req_nodes, test->mode,
			       test->preemptee_candidates,
			       test->preemptee_job_list,
			       GT_TEST_TAIL_OF(test));
	gt_stock.spent_us += gt_now_us() - start_us;
	return rc;
}
