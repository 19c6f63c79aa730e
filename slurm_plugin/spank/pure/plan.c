#include "plan.h"

#include <stdio.h>
#include <string.h>

/* RET the NUMA node that all GPUs share, or NULL */
static const gt_numa_t *shared_numa(const gt_table_t *table, const gt_list_t *gpus)
{
	int number = table->gpu[gpus->gpu[0]].numa;

	for (int i = 1; i < gpus->count; i++)
		if (table->gpu[gpus->gpu[i]].numa != number)
			return NULL;
	return number == GT_UNKNOWN ? NULL : gt_table_numa(table, number);
}

/*
 * Binds as numactl --cpunodebind, but takes only CPUs that the task has, and leaves it at
 * least --cpus-per-task of them.
 */
static void plan_cpus(const gt_numa_t *numa, const gt_task_t *task, gt_plan_t *plan)
{
	cpu_set_t *cpus = plan->cpus.of;
	unsigned left;

	if (task->is_cpu_bound || !numa || !gt_cpuset_parse(&plan->cpus, numa->cpus))
		return;
	CPU_AND_S(sizeof(plan->cpus), cpus, cpus, task->cpus.of);
	left = (unsigned) CPU_COUNT_S(sizeof(plan->cpus), cpus);
	plan->set_cpus = left && left >= (unsigned) task->cpus_per_task &&
		!CPU_EQUAL_S(sizeof(plan->cpus), cpus, task->cpus.of);
}

static bool fits(const gt_numa_t *numa, const gt_task_t *task)
{
	long there = numa->memory_mb;

	if (there == GT_UNKNOWN && task->numa_memory_mb)
		there = task->numa_memory_mb(numa->number);
	return task->memory_mb && there > 0 && task->memory_mb <= (unsigned long) there;
}

static void plan_memory(const gt_table_t *table, const gt_list_t *gpus, const gt_numa_t *numa,
			const gt_task_t *task, gt_mem_t wanted, gt_plan_t *plan)
{
	if (task->is_mem_bound || wanted == GT_MEM_NONE)
		return;
	if (wanted == GT_MEM_INTERLEAVE) {
		for (int i = 0; i < gpus->count; i++) {
			if (table->gpu[gpus->gpu[i]].numa == GT_UNKNOWN)
				return;
			plan->numa_nodes |= UINT64_C(1) << table->gpu[gpus->gpu[i]].numa;
		}
		plan->mem = GT_MEM_INTERLEAVE;
	} else if (numa) {
		plan->mem = wanted == GT_MEM_BIND && fits(numa, task) ? GT_MEM_BIND :
			GT_MEM_PREFERRED;
		plan->numa_nodes = UINT64_C(1) << numa->number;
	}
}

/* RET true when `name` (len bytes) is in the list by comma */
static bool is_listed(const char *list, const char *name, size_t len)
{
	for (const char *at = list; *at; at += strspn(at, ",")) {
		size_t here = strcspn(at, ",");

		if (here == len && !memcmp(at, name, len))
			return true;
		at += here;
	}
	return false;
}

/* Adds the NICs of `more` to `list`. RET false when has_nic says no, or the list is full */
static bool add_nics(char *list, size_t size, const char *more, bool (*has_nic)(const char *))
{
	for (const char *at = more; *at; at += strspn(at, ",")) {
		size_t len = strcspn(at, ","), used = strlen(list);
		char name[GT_NAME];

		if (len >= sizeof(name) || used + len + 2 > size)
			return false;
		memcpy(name, at, len);
		name[len] = '\0';
		at += len;
		if (is_listed(list, name, len))
			continue;
		if (has_nic && !has_nic(name))
			return false;
		snprintf(list + used, size - used, "%s%s", used ? "," : "", name);
	}
	return true;
}

/*
 * The NICs nearest to the task's GPUs. None are named where a GPU has no nearest NIC, where
 * the kernel does not know a name (a wrong one stops UCX), or where all would be named.
 */
static void plan_nics(const gt_table_t *table, const gt_list_t *gpus, const gt_task_t *task,
		      gt_plan_t *plan)
{
	char every[GT_TEXT] = "";
	bool is_narrower = false;

	for (int i = 0; i < gpus->count; i++) {
		const char *nics = table->gpu[gpus->gpu[i]].nics;

		if (!nics[0] || !add_nics(plan->nics, sizeof(plan->nics), nics, task->has_nic)) {
			plan->nics[0] = '\0';
			return;
		}
	}
	/* collects every NIC of the table; if they do not fit, the plan's list lacks some */
	for (int i = 0; i < table->gpus; i++)
		is_narrower |= !add_nics(every, sizeof(every), table->gpu[i].nics, NULL);
	/* the plan has some of these, each once: lists of one length hold the same NICs */
	if (!is_narrower && strlen(plan->nics) == strlen(every))
		plan->nics[0] = '\0';
}

extern bool gt_plan(const gt_table_t *table, const gt_settings_t *settings,
		    const gt_task_t *task, gt_plan_t *plan, char *note)
{
	gt_list_t gpus;
	const gt_numa_t *numa;

	memset(plan, 0, sizeof(*plan));
	if (!gt_devices(table, settings, task, &gpus, plan->visible, note))
		return false;
	numa = shared_numa(table, &gpus);
	if (settings->bind) {
		plan_cpus(numa, task, plan);
		plan_memory(table, &gpus, numa, task, settings->mem, plan);
	}
	if (settings->nic != GT_NIC_OFF)
		plan_nics(table, &gpus, task, plan);
	return true;
}
